package ownership

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// What isn't marked is never removed: both tags are needed, and the cluster's has to say "owned".
func TestMarked(t *testing.T) {
	const key = "karpenter.k8s.aws/ec2nodeclass"
	tag := func(key, value string) ec2types.Tag {
		return ec2types.Tag{Key: awssdk.String(key), Value: awssdk.String(value)}
	}
	for _, tt := range []struct {
		name string
		tags []ec2types.Tag
		want bool
	}{
		{"no tags", nil, false},
		{"both", []ec2types.Tag{tag("Name", "x"), tag("kubernetes.io/cluster/films", Owned), tag(key, "default")}, true},
		{"the key has no value", []ec2types.Tag{tag("kubernetes.io/cluster/films", Owned), {Key: awssdk.String(key)}}, true},
		{"without the key", []ec2types.Tag{tag("kubernetes.io/cluster/films", Owned)}, false},
		{"without the cluster", []ec2types.Tag{tag(key, "default")}, false},
		{"shared with the cluster", []ec2types.Tag{tag("kubernetes.io/cluster/films", "shared"), tag(key, "default")}, false},
		{"of the cluster, without a value", []ec2types.Tag{{Key: awssdk.String("kubernetes.io/cluster/films")}, tag(key, "default")}, false},
		{"of another cluster", []ec2types.Tag{tag("kubernetes.io/cluster/films2", Owned), tag(key, "default")}, false},
		{"a tag without a key", []ec2types.Tag{{}, tag(key, "default")}, false},
	} {
		if got := (Owner{Cluster: "films"}).Marked(tt.tags, key); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// What another Dovetail of the cluster has launched isn't ours, whichever of the two has a name. A class's own tag changes nothing about that.
func TestOwn(t *testing.T) {
	for _, tt := range []struct {
		us, them string
		want     bool
	}{{"", "", true}, {"red", "red", true}, {"", "blue", false}, {"red", "blue", false}, {"red", "", false}} {
		nc := &ec2nc.EC2NodeClass{Spec: ec2nc.EC2NodeClassSpec{Tags: map[string]string{"dovetail.sh/managed-by": "red"}}}
		tags := Owner{Cluster: "films", ManagedBy: tt.them}.LaunchTags(nc, "default")
		if got := (Owner{Cluster: "films", ManagedBy: tt.us}).Own(tags); got != tt.want {
			t.Errorf("what %q launched is that of %q: %t, want %t", tt.them, tt.us, got, tt.want)
		}
	}
}
