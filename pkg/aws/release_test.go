package aws

import (
	"slices"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

func TestWhatWasMadeForAClassGoesWithIt(t *testing.T) {
	w := newWorld(t, allowed("iam:PassRole", "*"))
	// The role has changed once, and the first one is gone: the profile that was created for it still exists.
	earlier := nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Spec.Role = "earlier" })
	if _, err := w.account.profiles.Find(w.ctx, earlier); err == nil || err.Error() != "spec.role: no role is called earlier" {
		t.Fatalf("the error is %v", err)
	}
	other := nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = "other", "uid-other" })
	for _, nc := range []*ec2nc.EC2NodeClass{nodeClass(), other} {
		w.SetNodeClass(nc)
		w.types(nc.Name)
	}
	left := func() []string {
		out, err := w.clients.IAM.ListInstanceProfiles(w.ctx, &iam.ListInstanceProfilesInput{PathPrefix: awssdk.String("/karpenter/us-west-2/films/")})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range out.InstanceProfiles {
			names = append(names, *p.InstanceProfileName)
		}
		return names
	}
	if got := left(); len(got) != 3 {
		t.Fatalf("profiles before: %v, want 3", got)
	}
	for range 2 { // it may be called again
		if err := w.ReleaseClass(w.ctx, nodeClass()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{ownProfiles.Name(other)}; !slices.Equal(left(), want) {
		t.Errorf("profiles after: %v, want %v", left(), want)
	}
	if _, err := w.InstanceTypes("default"); err == nil || err.Error() != "EC2NodeClass default does not exist" {
		t.Errorf("the class is %v, want gone", err)
	}
	given := nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Name, nc.Spec.Role, nc.Spec.InstanceProfile = "given", "", awssdk.String("theirs")
	})
	if err := w.ReleaseClass(w.ctx, given); err != nil {
		t.Errorf("a class with a profile of the user's: %v", err)
	}
}
