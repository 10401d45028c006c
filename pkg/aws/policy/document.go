package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Scope holds the account, region, cluster and names that the policy is for. An empty field stays a placeholder like ${Region}.
type Scope struct {
	Partition, Region, Account, Cluster string
	// NodeRole is the name of the nodes' IAM role, Queue that of the interruption queue.
	NodeRole, Queue string
}

type document struct {
	Version   string
	Statement []statement
}

// statement allows actions on resources, under conditions.
type statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string]any `json:",omitempty"`
}

// Document returns the policy as JSON. It fails if an action that is called appears in no statement: then a statement must define on
// which resources the action is allowed.
func Document(s Scope) ([]byte, error) {
	actions := Actions()
	left := map[string]bool{}
	for _, a := range actions {
		left[a] = true
	}
	doc := document{Version: "2012-10-17"}
	for _, st := range statements() {
		st.Action = slices.DeleteFunc(st.Action, func(a string) bool { return !slices.Contains(actions, a) })
		if len(st.Action) == 0 {
			continue
		}
		slices.Sort(st.Action)
		for _, a := range st.Action {
			delete(left, a)
		}
		st.Effect = "Allow"
		doc.Statement = append(doc.Statement, st)
	}
	for _, a := range actions {
		if left[a] {
			return nil, fmt.Errorf("%s is called, but no statement allows it", a)
		}
	}
	raw, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the policy: %w", err)
	}
	return append([]byte(s.fill(string(raw))), '\n'), nil
}

// fill replaces placeholders by their values.
func (s Scope) fill(text string) string {
	for _, p := range []struct{ name, value string }{
		{"Partition", s.Partition}, {"Region", s.Region}, {"Account", s.Account}, {"Cluster", s.Cluster}, {"NodeRole", s.NodeRole}, {"Queue", s.Queue},
	} {
		if p.value != "" {
			text = strings.ReplaceAll(text, "${"+p.name+"}", p.value)
		}
	}
	return text
}

const (
	ownCluster  = "aws:ResourceTag/kubernetes.io/cluster/${Cluster}"
	ownPool     = "aws:ResourceTag/karpenter.sh/nodepool"
	madeCluster = "aws:RequestTag/kubernetes.io/cluster/${Cluster}"
	profiles    = "arn:${Partition}:iam::${Account}:instance-profile/karpenter/${Region}/${Cluster}/*"
)

// ours is the condition that a resource has the tags of this cluster.
func ours() map[string]map[string]any {
	return map[string]map[string]any{"StringEquals": {ownCluster: "owned"}, "StringLike": {ownPool: "*"}}
}

func ec2(owner string, kinds ...string) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, "arn:${Partition}:ec2:${Region}:"+owner+":"+k+"/*")
	}
	return out
}

// statements returns all statements of the policy. Document removes actions that are not called.
func statements() []statement {
	made := ec2("*", "fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
	return []statement{
		{
			Sid: "Look", Resource: []string{"*"}, Condition: map[string]map[string]any{"StringEquals": {"aws:RequestedRegion": "${Region}"}},
			Action: []string{"ec2:DescribeCapacityReservations", "ec2:DescribeImages", "ec2:DescribeInstanceStatus", "ec2:DescribeInstanceTypeOfferings",
				"ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeLaunchTemplates", "ec2:DescribePlacementGroups",
				"ec2:DescribeSecurityGroups", "ec2:DescribeSpotInstanceRequests", "ec2:DescribeSpotPriceHistory", "ec2:DescribeSubnets"},
		},
		{Sid: "LookElsewhere", Resource: []string{"*"}, Action: []string{"arc-zonal-shift:GetManagedResource", "iam:GetInstanceProfile", "iam:ListInstanceProfiles", "pricing:GetProducts"}},
		{Sid: "ImageAliases", Resource: []string{"arn:${Partition}:ssm:${Region}::parameter/aws/service/*"}, Action: []string{"ssm:GetParameters"}},
		{Sid: "Cluster", Resource: []string{"arn:${Partition}:eks:${Region}:${Account}:cluster/${Cluster}"}, Action: []string{"eks:DescribeCluster"}},
		{
			Sid: "LaunchFrom", Action: []string{"ec2:CreateFleet", "ec2:RunInstances"},
			Resource: append(ec2("", "image", "snapshot"), ec2("*", "security-group", "subnet", "capacity-reservation", "placement-group")...),
		},
		{
			Sid: "LaunchFromOwnTemplates", Action: []string{"ec2:CreateFleet", "ec2:RunInstances"}, Resource: ec2("*", "launch-template"), Condition: ours(),
		},
		{
			// Launch templates that users maintain for their Provisioners.
			Sid: "LaunchFromSharedTemplates", Action: []string{"ec2:CreateFleet", "ec2:RunInstances"}, Resource: ec2("*", "launch-template"),
			Condition: map[string]map[string]any{"StringEquals": {ownCluster: "shared"}},
		},
		{
			Sid: "MakeTagged", Action: []string{"ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:RunInstances"}, Resource: made,
			Condition: map[string]map[string]any{
				"StringEquals": {madeCluster: "owned", "aws:RequestTag/eks:eks-cluster-name": "${Cluster}"},
				"StringLike":   {"aws:RequestTag/karpenter.sh/nodepool": "*"},
			},
		},
		{
			Sid: "TagWhatIsMade", Action: []string{"ec2:CreateTags"}, Resource: made,
			Condition: map[string]map[string]any{
				"StringEquals": {madeCluster: "owned", "ec2:CreateAction": []string{"RunInstances", "CreateFleet", "CreateLaunchTemplate"}},
			},
		},
		{
			Sid: "NameInstances", Action: []string{"ec2:CreateTags"}, Resource: ec2("*", "instance"),
			Condition: map[string]map[string]any{
				"StringEquals": {ownCluster: "owned"}, "StringLike": {ownPool: "*"},
				"ForAllValues:StringEquals": {"aws:TagKeys": []string{"karpenter.sh/nodeclaim", "Name"}},
			},
		},
		{
			Sid: "EndOwn", Action: []string{"ec2:DeleteLaunchTemplate", "ec2:TerminateInstances"}, Resource: ec2("*", "instance", "launch-template"), Condition: ours(),
		},
		{
			Sid: "OwnProfiles", Resource: []string{profiles},
			Action: []string{"iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"},
		},
		{
			Sid: "TagOwnProfiles", Resource: []string{profiles}, Action: []string{"iam:TagInstanceProfile"},
			Condition: map[string]map[string]any{"StringEquals": {madeCluster: "owned"}},
		},
		{
			Sid: "PassNodeRole", Resource: []string{"arn:${Partition}:iam::${Account}:role/${NodeRole}"}, Action: []string{"iam:PassRole"},
			Condition: map[string]map[string]any{"StringEquals": {"iam:PassedToService": []string{"ec2.amazonaws.com", "ec2.amazonaws.com.cn"}}},
		},
		{
			Sid: "HearOfInterruptions", Resource: []string{"arn:${Partition}:sqs:${Region}:${Account}:${Queue}"},
			Action: []string{"sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"},
		},
	}
}
