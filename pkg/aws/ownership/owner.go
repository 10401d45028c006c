package ownership

import (
	"cmp"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Owner tells by their tags which resources of the account belong to a cluster or, if several Dovetails run in the cluster, to one of
// them.
type Owner struct {
	// Cluster is the name of the cluster.
	Cluster string
	// ManagedBy is the name of this Dovetail; empty: it has none.
	ManagedBy string
}

// Owned is the value of the tag on what belongs to the cluster.
const Owned = "owned"

// Tag is the tag on everything that belongs to this cluster, with the value Owned.
func (o Owner) Tag() string { return "kubernetes.io/cluster/" + o.Cluster }

// Filter selects the resources of this cluster.
func (o Owner) Filter() ec2types.Filter { return sdk.Filter("tag:"+o.Tag(), Owned) }

// Marked reports whether tags mark a resource of this cluster and include the key.
func (o Owner) Marked(tags []ec2types.Tag, key string) bool {
	has := func(key string, is func(value string) bool) bool {
		return slices.ContainsFunc(tags, func(t ec2types.Tag) bool { return awssdk.ToString(t.Key) == key && is(awssdk.ToString(t.Value)) })
	}
	return has(o.Tag(), func(v string) bool { return v == Owned }) && has(key, func(string) bool { return true })
}

// Own reports, by the tags of what a launch created (instances, volumes, launch templates), whether it is this Dovetail's and not that of another
// Dovetail in the cluster. This process never removes what belongs to another Dovetail, because it doesn't know that Dovetail's claims.
func (o Owner) Own(tags map[string]string) bool { return tags[objects.TagManagedBy] == o.ManagedBy }

// Tags returns the class's own tags and those that mark a resource as this cluster's.
func (o Owner) Tags(nc *ec2nc.EC2NodeClass) map[string]string {
	tags := map[string]string{}
	for k, v := range nc.Spec.Tags {
		tags[k] = v
	}
	tags[o.Tag()] = Owned
	tags[ec2nc.EKSClusterNameTagKey] = o.Cluster
	return tags
}

// noPool is the value of the pool's tag where there is no pool. No NodePool can have this name.
const noPool = "-"

// LaunchTags returns the tags of everything that a launch creates. A node without a pool has the pool's tag too, because List selects
// instances by that tag. Its value isn't empty: the IAM policy asks for any value, and an empty one may not count as one.
func (o Owner) LaunchTags(nc *ec2nc.EC2NodeClass, pool string) map[string]string {
	tags := o.Tags(nc)
	if _, own := tags[ec2nc.NameTagKey]; !own {
		tags[ec2nc.NameTagKey] = cmp.Or(pool, nc.Name)
	}
	tags[ec2nc.NodePoolTagKey], tags[ec2nc.NodeClassTagKey] = cmp.Or(pool, noPool), nc.Name
	delete(tags, objects.TagManagedBy) // a tag in the class must not make its instances another Dovetail's
	if o.ManagedBy != "" {
		tags[objects.TagManagedBy] = o.ManagedBy
	}
	return tags
}

// BatchTags returns the tags of the instances, volumes and fleets of a launch batch: those of LaunchTags, and the batch's token.
func (o Owner) BatchTags(nc *ec2nc.EC2NodeClass, pool, token string) map[string]string {
	tags := o.LaunchTags(nc, pool)
	tags[objects.TagLaunchBatch] = token
	return tags
}

// ClaimTags returns the tags that an instance gets when its Node exists. The name of the Node may be empty.
func ClaimTags(claim, nodeName string) map[string]string {
	tags := map[string]string{ec2nc.NodeClaimTagKey: claim}
	if nodeName != "" {
		tags[ec2nc.NameTagKey] = nodeName
	}
	return tags
}
