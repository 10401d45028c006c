package iam

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const document = `{"Version": "2012-10-17", "Statement": [
  {"Sid": "Look", "Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestedRegion": "us-west-2"}}},
  {"Sid": "End", "Effect": "Allow", "Action": ["ec2:TerminateInstances"], "Resource": ["arn:aws:ec2:us-west-2:*:instance/*"],
   "Condition": {"StringEquals": {"aws:ResourceTag/owner": ["blue", "green"]}, "StringLike": {"aws:ResourceTag/pool": "*"}}},
  {"Sid": "Tag", "Effect": "Allow", "Action": ["ec2:CreateTags"], "Resource": ["*"],
   "Condition": {"ForAllValues:StringEquals": {"aws:TagKeys": ["Name", "claim"]}, "StringNotEquals": {"ec2:CreateAction": "RunInstances"}, "Null": {"aws:TagKeys": "false"}}},
  {"Sid": "NotThisOne", "Effect": "Deny", "Action": ["*"], "Resource": ["arn:aws:ec2:*:*:instance/i-precious"]}
]}`

func TestAllows(t *testing.T) {
	p, err := Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	const instance = "arn:aws:ec2:us-west-2:123456789012:instance/i-1"
	for _, tt := range []struct {
		name, action, resource string
		context                map[string]string
		keys                   []string
		want                   bool
	}{
		{"a wildcard in the action", "ec2:DescribeInstances", "*", map[string]string{"aws:RequestedRegion": "us-west-2"}, nil, true},
		{"actions and keys in any letter case", "EC2:describeinstances", "*", map[string]string{"AWS:requestedregion": "us-west-2"}, nil, true},
		{"another region", "ec2:DescribeInstances", "*", map[string]string{"aws:RequestedRegion": "us-east-1"}, nil, false},
		{"a key that is missing", "ec2:DescribeInstances", "*", nil, nil, false},
		{"an action that nothing allows", "ec2:RunInstances", "*", map[string]string{"aws:RequestedRegion": "us-west-2"}, nil, false},
		{"one value of several", "ec2:TerminateInstances", instance, map[string]string{"aws:ResourceTag/owner": "green", "aws:ResourceTag/pool": "p"}, nil, true},
		{"no value", "ec2:TerminateInstances", instance, map[string]string{"aws:ResourceTag/owner": "red", "aws:ResourceTag/pool": "p"}, nil, false},
		{"one of two conditions", "ec2:TerminateInstances", instance, map[string]string{"aws:ResourceTag/owner": "green"}, nil, false},
		{"an empty value is none", "ec2:TerminateInstances", instance, map[string]string{"aws:ResourceTag/owner": "green", "aws:ResourceTag/pool": ""}, nil, false},
		{"another kind of resource", "ec2:TerminateInstances", strings.Replace(instance, "instance", "volume", 1), map[string]string{"aws:ResourceTag/owner": "green", "aws:ResourceTag/pool": "p"}, nil, false},
		{"a denial wins", "ec2:TerminateInstances", "arn:aws:ec2:us-west-2:1:instance/i-precious", map[string]string{"aws:ResourceTag/owner": "green", "aws:ResourceTag/pool": "p"}, nil, false},
		{"all values allowed", "ec2:CreateTags", instance, nil, []string{"Name", "claim"}, true},
		{"one value too many", "ec2:CreateTags", instance, nil, []string{"Name", "claim", "owner"}, false},
		{"no value at all", "ec2:CreateTags", instance, nil, nil, false},
		{"a negated condition", "ec2:CreateTags", instance, map[string]string{"ec2:CreateAction": "RunInstances"}, []string{"Name"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := Context{}
			for k, v := range tt.context {
				ctx.Set(k, v)
			}
			if tt.keys != nil {
				ctx["aws:tagkeys"] = tt.keys
			}
			if got := p.Allows(Query{tt.action, tt.resource, ctx}); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
}

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "x", true}, {"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c", false}, {"a?c", "abc", true}, {"a?c", "ac", false}, {"ab", "abc", false}, {"a*a", "a", false}, {"**", "x", true},
	} {
		if got := newPattern(tt.pattern).matches(tt.text); got != tt.want {
			t.Errorf("%q matches %q: %t, want %t", tt.pattern, tt.text, got, tt.want)
		}
	}
}

// A grant is needed if no other statement allows the same.
func TestNeeded(t *testing.T) {
	p, err := Parse([]byte(`{"Version": "2012-10-17", "Statement": [
		{"Sid": "A", "Effect": "Allow", "Action": ["x:Get", "x:Put"], "Resource": "a/*"}, {"Sid": "B", "Effect": "Allow", "Action": ["x:Get", "x:Put"], "Resource": "*/b"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []Query{{Action: "x:Get", Resource: "a/b"}, {Action: "x:Put", Resource: "a/c"}, {Action: "x:Get", Resource: "c/d"}} {
		p.Allows(q)
	}
	if diff := cmp.Diff([]Grant{{"A", "x:Put"}}, p.Needed()); diff != "" {
		t.Errorf("needed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Grant{{"A", "x:Get"}, {"A", "x:Put"}, {"B", "x:Get"}, {"B", "x:Put"}}, p.Grants(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
}

// What isn't understood isn't ignored.
func TestParseRefuses(t *testing.T) {
	statement := func(s string) string {
		return fmt.Sprintf(`{"Version": "2012-10-17", "Statement": [{"Sid": "A", "Effect": "Allow", "Action": "x:Get", %s}]}`, s)
	}
	for name, doc := range map[string]string{
		"no JSON":            "{",
		"another element":    statement(`"NotResource": "*"`),
		"no resource":        statement(`"Condition": {}`),
		"an operator":        statement(`"Resource": "*", "Condition": {"DateLessThan": {"aws:CurrentTime": "2026-01-01"}}`),
		"a set operator":     statement(`"Resource": "*", "Condition": {"ForSomeValues:StringEquals": {"aws:TagKeys": "a"}}`),
		"no value":           statement(`"Resource": "*", "Condition": {"StringEquals": {"aws:TagKeys": []}}`),
		"a policy variable":  statement(`"Resource": "arn:${Partition}:x"`),
		"an effect of sorts": strings.Replace(statement(`"Resource": "*"`), "Allow", "allow", 1),
	} {
		if p, err := Parse([]byte(doc)); err == nil {
			t.Errorf("%s: no error, but %+v", name, p)
		}
	}
}
