package policy

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the shipped policy anew")

// The shipped files are the generated ones: go test ./pkg/aws/policy -update
func TestShipped(t *testing.T) {
	for name, generate := range map[string]func() ([]byte, error){
		"policy.json": func() ([]byte, error) { return Document(Scope{}) }, "cloudformation.yaml": CloudFormation,
	} {
		path := filepath.Join("..", "..", "..", "manifests", "iam", name)
		want, err := generate()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not what the program calls (-generated +shipped); go test ./pkg/aws/policy -update writes it anew:\n%s", path, diff)
		}
	}
}

// The stack's policy is the same one, with CloudFormation's own placeholders.
func TestCloudFormation(t *testing.T) {
	raw, err := CloudFormation()
	if err != nil {
		t.Fatal(err)
	}
	var stack struct {
		Parameters map[string]any
		Resources  map[string]struct {
			Type       string
			Properties map[string]any
		}
	}
	if err := yaml.Unmarshal(raw, &stack); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, r := range stack.Resources {
		types = append(types, r.Type)
	}
	slices.Sort(types)
	if diff := cmp.Diff([]string{"AWS::Events::Rule", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role", "AWS::SQS::Queue", "AWS::SQS::QueuePolicy"}, slices.Compact(types)); diff != "" {
		t.Errorf("types of resources (-want +got):\n%s", diff)
	}
	var rules, senders []string
	for name, r := range stack.Resources {
		if r.Type == "AWS::Events::Rule" {
			rules = append(rules, name)
		}
	}
	allow := stack.Resources["InterruptionsPolicy"].Properties["PolicyDocument"].(map[string]any)["Statement"].([]any)[0].(map[string]any)
	if allow["Effect"] != "Allow" || allow["Principal"].(map[string]any)["Service"] != "events.amazonaws.com" {
		t.Errorf("who may send messages to the queue: %v", allow)
	}
	for _, arn := range allow["Condition"].(map[string]any)["ArnEquals"].(map[string]any)["aws:SourceArn"].([]any) {
		senders = append(senders, arn.(map[string]any)["Fn::GetAtt"].([]any)[0].(string))
	}
	slices.Sort(rules)
	slices.Sort(senders)
	if diff := cmp.Diff(rules, senders); diff != "" {
		t.Errorf("rules that may send messages to the queue (-the stack's +allowed):\n%s", diff)
	}
	text, _ := stack.Resources["ControllerPolicy"].Properties["PolicyDocument"].(map[string]any)["Fn::Sub"].(string)
	var doc document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, m := range regexp.MustCompile(`\$\{([^}]*)\}`).FindAllStringSubmatch(text+trustOfIRSA(t, stack.Resources["SchedulerRole"].Properties), -1) {
		_, parameter := stack.Parameters[m[1]]
		base, _, _ := strings.Cut(m[1], ".")
		if _, resource := stack.Resources[base]; !parameter && !resource && !strings.HasPrefix(m[1], "AWS::") {
			t.Errorf("nobody knows ${%s}", m[1])
		}
	}
}

// trustOfIRSA returns the text that says who may use the scheduler's role with IRSA. It is JSON once the provider is filled in: only the
// ServiceAccount gets credentials, and only those that are meant for AWS.
func trustOfIRSA(t *testing.T, role map[string]any) string {
	t.Helper()
	choice := role["AssumeRolePolicyDocument"].(map[string]any)["Fn::If"].([]any)
	text, _ := choice[1].(map[string]any)["Fn::Sub"].(string)
	var trust struct {
		Statement []struct {
			Action    string
			Principal map[string]string
			Condition map[string]map[string]string
		}
	}
	filled := strings.NewReplacer("${OIDCProvider}", "oidc.example.com/id/1", "${ServiceAccount}", "kube-system:dovetail-scheduler").Replace(text)
	if err := json.Unmarshal([]byte(filled), &trust); err != nil {
		t.Fatalf("%v in %s", err, filled)
	}
	want := map[string]map[string]string{"StringEquals": {
		"oidc.example.com/id/1:aud": "sts.amazonaws.com", "oidc.example.com/id/1:sub": "system:serviceaccount:kube-system:dovetail-scheduler"}}
	if diff := cmp.Diff(want, trust.Statement[0].Condition); diff != "" || len(trust.Statement) != 1 || trust.Statement[0].Action != "sts:AssumeRoleWithWebIdentity" {
		t.Errorf("who may use the role with IRSA: %+v (-want +got):\n%s", trust, diff)
	}
	pods := choice[2].(map[string]any)["Statement"].([]any)[0].(map[string]any)
	if service := pods["Principal"].(map[string]any)["Service"]; choice[0] != "IRSA" || service != "pods.eks.amazonaws.com" {
		t.Errorf("who may use the role with Pod Identity: %v, if %v", service, choice[0])
	}
	if first := role["ManagedPolicyArns"].([]any)[0].(map[string]any)["Ref"]; first != "ControllerPolicy" {
		t.Errorf("the scheduler's role has the policy %v", first)
	}
	return text
}

// The policy allows what is called and what that implies: each action at least once, and no other.
func TestPolicyAllowsWhatIsCalled(t *testing.T) {
	raw, err := Document(Scope{})
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range doc.Statement {
		if s.Effect != "Allow" || len(s.Resource) == 0 {
			t.Errorf("statement %+v", s)
		}
		for _, r := range s.Resource {
			if r == "*" && slices.ContainsFunc(s.Action, func(a string) bool { return !reads(a) }) {
				t.Errorf("%s allows changes of everything", s.Sid)
			}
		}
		got = append(got, s.Action...)
	}
	slices.Sort(got)
	if diff := cmp.Diff(Actions(), slices.Compact(got)); diff != "" {
		t.Errorf("actions (-called +allowed):\n%s", diff)
	}
	for _, must := range []string{"ec2:CreateFleet", "ec2:RunInstances", "iam:PassRole", "ssm:GetParameters", "pricing:GetProducts", "eks:DescribeCluster"} {
		if !slices.Contains(got, must) {
			t.Errorf("%s is not allowed", must)
		}
	}
}

func reads(action string) bool {
	_, name, _ := strings.Cut(action, ":")
	return strings.HasPrefix(name, "Describe") || strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List")
}

func TestPolicyOfACluster(t *testing.T) {
	raw, err := Document(Scope{Partition: "aws", Region: "eu-west-1", Account: "123456789012", Cluster: "blue", NodeRole: "BlueNode", Queue: "blue-events"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "${") {
		t.Errorf("a placeholder is left in %s", raw)
	}
	for _, want := range []string{"arn:aws:iam::123456789012:role/BlueNode", "aws:ResourceTag/kubernetes.io/cluster/blue", "arn:aws:ec2:eu-west-1:*:instance/*"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the policy does not say %s", want)
		}
	}
	// Managed policies may have 6,144 characters, without white space.
	var compact strings.Builder
	for _, r := range string(raw) {
		if r != ' ' && r != '\n' {
			compact.WriteRune(r)
		}
	}
	if n := compact.Len(); n > 6144 {
		t.Errorf("the policy has %d characters, IAM takes 6144", n)
	}
}
