package policy

import (
	"reflect"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Calls returns the actions of all calls that the program may make, as IAM names them, sorted: ec2:CreateFleet.
func Calls() []string {
	var out []string
	clients := reflect.TypeFor[sdk.Clients]()
	for i := range clients.NumField() {
		f := clients.Field(i)
		for j := range f.Type.NumMethod() {
			call := strings.ToLower(f.Name) + ":" + f.Type.Method(j).Name
			if name, ok := named[call]; ok {
				call = name
			}
			out = append(out, call)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// named are calls that have another name in IAM.
var named = map[string]string{"sqs:DeleteMessageBatch": "sqs:DeleteMessage", "arczonalshift:GetManagedResource": "arc-zonal-shift:GetManagedResource"}

// implied are further actions that AWS checks for a call: a fleet runs instances, with a role; resources created with tags are tagged.
var implied = map[string][]string{
	"ec2:CreateFleet":           {"ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"},
	"ec2:CreateLaunchTemplate":  {"ec2:CreateTags"},
	"iam:CreateInstanceProfile": {"iam:TagInstanceProfile"},
}

// Actions returns Calls and the actions they imply.
func Actions() []string {
	var out []string
	for _, c := range Calls() {
		out = append(append(out, c), implied[c]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
