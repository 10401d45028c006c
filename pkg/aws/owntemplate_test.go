package aws

import (
	"errors"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// withOwn returns a class like that of a legacy Provisioner: it has subnets, and names a launch template.
func withOwn(name string) *ec2nc.EC2NodeClass {
	return nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Annotations = map[string]string{objects.AnnotationLaunchTemplate: name}
		nc.Spec = ec2nc.EC2NodeClassSpec{SubnetSelectorTerms: nc.Spec.SubnetSelectorTerms, Tags: map[string]string{"team": "a"}}
	})
}

// keep creates a launch template as a user would, with the tags that the shipped policy asks for: on it, and on network interfaces.
func (w *world) keep(name string, data *ec2types.RequestLaunchTemplateData) {
	w.t.Helper()
	var owned []ec2types.Tag
	for k, v := range map[string]string{"kubernetes.io/cluster/films": "owned", "eks:eks-cluster-name": "films", "karpenter.sh/nodepool": "-"} {
		owned = append(owned, ec2types.Tag{Key: &k, Value: &v})
	}
	data.TagSpecifications = append(data.TagSpecifications, ec2types.LaunchTemplateTagSpecificationRequest{ResourceType: ec2types.ResourceTypeNetworkInterface, Tags: owned})
	shared := []ec2types.Tag{{Key: awssdk.String("kubernetes.io/cluster/films"), Value: awssdk.String("shared")}}
	if _, err := w.user.EC2.CreateLaunchTemplate(w.ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: data,
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: shared}}}); err != nil {
		w.t.Fatal(err)
	}
}

// anImage returns the newest image for amd64.
func (w *world) anImage() string {
	w.t.Helper()
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name = "images" }))
	st := w.status("images", isReady(metav1.ConditionTrue))
	for _, ami := range st.AMIs {
		if strings.Contains(ami.Name, "x86_64-standard") {
			return ami.ID
		}
	}
	w.t.Fatalf("no image among %v", st.AMIs)
	return ""
}

func TestLaunchTemplateOfTheUsersOwn(t *testing.T) {
	w := newWorld(t)
	image := w.anImage()
	w.keep("mine", &ec2types.RequestLaunchTemplateData{
		ImageId:            &image,
		IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: awssdk.String("DovetailNode")},
		SecurityGroupIds:   []string{w.groupCalled("default")},
		BlockDeviceMappings: []ec2types.LaunchTemplateBlockDeviceMappingRequest{
			{DeviceName: awssdk.String("/dev/xvda"), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: awssdk.Int32(100)}},
			{DeviceName: awssdk.String("/dev/xvdb"), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: awssdk.Int32(8)}},
		},
	})
	made := len(w.sim.Calls("CreateLaunchTemplate"))
	w.SetNodeClass(withOwn("mine"))
	types := w.types("default")
	if typeOf(types, "m6g.large") != nil {
		t.Error("a type of another architecture than the image's is offered")
	}
	m5 := typeOf(types, "m5.large")
	if m5 == nil {
		t.Fatal("m5.large is not offered")
	}
	if disk := m5.Capacity["ephemeral-storage"]; disk > 8<<30 || disk < 7<<30 {
		t.Errorf("ephemeral-storage of %d bytes, want what the template's smallest volume holds", disk)
	}
	st := w.status("default", isReady(metav1.ConditionTrue))
	if len(st.AMIs) != 1 || st.AMIs[0].ID != image || len(st.Subnets) != 3 {
		t.Errorf("status %+v", st)
	}

	res, err := w.Launch(w.ctx, w.prepared(newBatch("token-1", "spot", 1, offer("m5.large", "a", "spot"), offer("m5.xlarge", "a", "spot"))))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Instances) != 1 {
		t.Fatalf("launched %v: %s", res.Instances, res.Message)
	}
	in := w.sim.Live()[0]
	if in.ImageID != image || in.Profile != "DovetailNode" || len(in.Groups) != 1 || in.Groups[0] != w.groupCalled("default") || len(in.Volumes) != 2 {
		t.Errorf("launched %+v", in)
	}
	if in.Tags["team"] != "a" || in.Tags["karpenter.sh/nodepool"] != "pool" || in.Tags["dovetail.sh/launch-batch"] != "token-1" {
		t.Errorf("tags %v", in.Tags)
	}
	if n := len(w.sim.Calls("CreateLaunchTemplate")); n != made {
		t.Errorf("%d launch templates were made beside it", n-made)
	}
}

func TestLaunchTemplateThatCannotBeUsed(t *testing.T) {
	w := newWorld(t)
	w.keep("empty", &ec2types.RequestLaunchTemplateData{InstanceType: ec2types.InstanceTypeM5Large})
	for name, want := range map[string]string{
		"gone":  "EC2NodeClass default: no launch template is called gone",
		"empty": "EC2NodeClass default: launch template empty names no image",
	} {
		nc := withOwn(name)
		nc.UID = "of-" + nc.UID
		nc.Generation = int64(len(name))
		w.SetNodeClass(nc)
		w.status("default", func(st ec2nc.EC2NodeClassStatus) bool {
			_, err := w.InstanceTypes("default")
			return condition(st, ec2nc.ConditionTypeAMIsReady).Status == metav1.ConditionFalse && err != nil && err.Error() == want
		})
	}
	if _, err := w.Prepare(w.ctx, newBatch("token-1", "spot", 1, offer("m5.large", "a", "spot"))); !errors.Is(err, capacity.ErrNodeClassNotReady) {
		t.Errorf("preparing a launch: %v, want the class not to be ready", err)
	}
}

// If a template is deleted between two lookups, the launch that needs it detects that.
func TestLaunchTemplateThatGoes(t *testing.T) {
	w := newWorld(t)
	image := w.anImage()
	w.keep("mine", &ec2types.RequestLaunchTemplateData{ImageId: &image})
	w.SetNodeClass(withOwn("mine"))
	w.types("default")
	v := w.prepared(newBatch("token-1", "spot", 1, offer("m5.large", "a", "spot")))
	if _, err := w.user.EC2.DeleteLaunchTemplate(w.ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: awssdk.String("mine")}); err != nil {
		t.Fatal(err)
	}
	if res, err := w.Launch(w.ctx, v); err == nil {
		t.Fatalf("launched %v", res.Instances)
	}
	w.status("default", isReady(metav1.ConditionFalse))
}

// On a class that selects images the annotation has no effect.
func TestAnnotationOnAnOrdinaryClass(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Annotations = map[string]string{objects.AnnotationLaunchTemplate: "gone"}
	}))
	w.types("default")
}
