package aws

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// policy.json is the IAM policy the program runs under. It allows the calls in sdk.go and what EC2 and IAM check beside
// them, nothing else.
func TestPolicyAllowsWhatIsCalled(t *testing.T) {
	// Not calls of ours, but permissions that ours need: a fleet runs instances, with a role; a profile is made with tags.
	want := []string{"ec2:RunInstances", "iam:PassRole", "iam:TagInstanceProfile"}
	clients := reflect.TypeFor[Clients]()
	for i := range clients.NumField() {
		f := clients.Field(i)
		for j := range f.Type.NumMethod() {
			want = append(want, strings.ToLower(f.Name)+":"+f.Type.Method(j).Name)
		}
	}
	raw, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Statement []struct {
			Effect   string
			Action   any
			Resource any
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range doc.Statement {
		if s.Effect != "Allow" || s.Resource == nil {
			t.Errorf("statement %+v", s)
		}
		switch a := s.Action.(type) {
		case string:
			got = append(got, a)
		case []any:
			for _, one := range a {
				got = append(got, one.(string))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("permissions (-called +allowed):\n%s", diff)
	}
}
