package sdk

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// clients are those of the services that the documentation's commands call: each operation of AWS's command line is a method of the service's
// client, and each of its options a field of that method's input.
var clients = map[string]reflect.Type{
	"ec2": reflect.TypeFor[*ec2.Client](), "eks": reflect.TypeFor[*eks.Client](), "iam": reflect.TypeFor[*iam.Client](), "sts": reflect.TypeFor[*sts.Client](),
}

// waiters are what `aws SERVICE wait` waits for. The options are those of the operation that is asked until it is so.
var waiters = map[string]reflect.Type{
	"eks cluster-active": reflect.TypeFor[*eks.ClusterActiveWaiter](), "eks fargate-profile-active": reflect.TypeFor[*eks.FargateProfileActiveWaiter](),
}

// others are commands of services that this program doesn't call, or that only the command line has, with the options that are used.
var others = map[string][]string{
	"cloudformation deploy":                {"stack-name", "template-file", "parameter-overrides", "capabilities"},
	"cloudformation delete-stack":          {"stack-name"},
	"cloudformation stack-delete-complete": {"stack-name"}, // after wait
	"cloudformation describe-stack-events": {"stack-name"},
	"ecr create-repository":                {"repository-name"},
	"ecr delete-repository":                {"repository-name", "force"},
	"ecr get-login-password":               {},
}

// global are options of every command.
var global = []string{"region", "query", "output"}

var (
	awsCommand = regexp.MustCompile(`\baws ([a-z0-9]+) (?:wait )?([a-z][a-z-]+)\b((?:[^` + "`" + `|\n\\]|\\\n)*)`)
	option     = regexp.MustCompile(`(?:^|\s)--([a-z-]+)`)
	quoted     = regexp.MustCompile(`(?s)\s'[^']*'`)
)

// Every command of AWS's command line in the documentation is an operation that exists, with options that it has.
func TestDocumentedAWSCommands(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	found := 0
	for _, glob := range []string{"*.md", "docs/*.md", "docs/design/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range awsCommand.FindAllStringSubmatch(strings.ReplaceAll(quoted.ReplaceAllString(string(text), " ''"), "$(", "\n"), -1) {
				found++
				service, operation := m[1], m[2]
				if service == "eks" && operation == "update-kubeconfig" {
					continue // the command line's own: it writes a file, and is no operation of the service
				}
				for _, o := range option.FindAllStringSubmatch(m[3], -1) {
					if wrong := wrongAWS(service, operation, o[1]); wrong != "" {
						t.Errorf("%s: aws %s %s --%s: there is no such %s", path, service, operation, o[1], wrong)
					}
				}
				if wrong := wrongAWS(service, operation, "region"); wrong != "" {
					t.Errorf("%s: aws %s %s: there is no such %s", path, service, operation, wrong)
				}
			}
		}
	}
	if found < 16 {
		t.Errorf("only %d commands were found: this test reads the pages wrongly", found)
	}
	for _, wrong := range [][3]string{{"ec2", "create-tagz", "tags"}, {"eks", "create-access-entry", "principal"}, {"s3", "sync", "region"}, {"eks", "cluster-active", "cluster"}, {"eks", "cluster-idle", "name"}} {
		if wrongAWS(wrong[0], wrong[1], wrong[2]) == "" {
			t.Errorf("nothing is wrong with %v", wrong)
		}
	}
}

// wrongAWS returns what of a command doesn't exist: the operation or the option; "": all of it does.
func wrongAWS(service, operation, option string) string {
	client, ok := clients[service]
	if !ok {
		options, ok := others[service+" "+operation]
		switch {
		case !ok:
			return "operation"
		case !slices.Contains(options, option) && !slices.Contains(global, option):
			return "option"
		}
		return ""
	}
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "")) }
	if waiter, ok := waiters[service+" "+operation]; ok {
		client, operation = waiter, "wait"
	}
	for i := range client.NumMethod() {
		m := client.Method(i)
		if strings.ToLower(m.Name) != plain(operation) {
			continue
		}
		if _, ok := m.Type.In(2).Elem().FieldByNameFunc(func(f string) bool { return strings.ToLower(f) == plain(option) }); !ok && !slices.Contains(global, option) {
			return "option"
		}
		return ""
	}
	return "operation"
}
