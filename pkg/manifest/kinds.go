package manifest

import (
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/node"
	nodevalidation "k8s.io/kubernetes/pkg/apis/node/validation"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"

	// Kubernetes' own kinds with their defaults.
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// kind is a kind of object that influences where pods are placed.
type kind struct {
	version string // the only version that is supported
	cluster bool   // cluster-scoped
	// custom returns an empty object of a kind that is not one of Kubernetes' own.
	custom func() client.Object
	// workload: a controller creates pods for it. For an object that was read from an existing cluster no pods are made: the cluster has
	// them already.
	workload bool
	// reported: only a cluster has objects of this kind; one in a manifest doesn't matter.
	reported bool
}

var understood = map[schema.GroupKind]kind{
	{Kind: "Pod"}:                   {version: "v1"},
	{Kind: "Node"}:                  {version: "v1", cluster: true},
	{Kind: "Event"}:                 {version: "v1", reported: true},
	{Kind: "Namespace"}:             {version: "v1", cluster: true},
	{Kind: "Service"}:               {version: "v1"},
	{Kind: "LimitRange"}:            {version: "v1"},
	{Kind: "PersistentVolume"}:      {version: "v1", cluster: true},
	{Kind: "PersistentVolumeClaim"}: {version: "v1"},

	{Group: "apps", Kind: "Deployment"}:  {version: "v1", workload: true},
	{Group: "apps", Kind: "ReplicaSet"}:  {version: "v1", workload: true},
	{Group: "apps", Kind: "StatefulSet"}: {version: "v1", workload: true},
	{Group: "apps", Kind: "DaemonSet"}:   {version: "v1"},
	{Group: "batch", Kind: "Job"}:        {version: "v1", workload: true},

	{Group: "policy", Kind: "PodDisruptionBudget"}:        {version: "v1", reported: true},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:   {version: "v1", cluster: true},
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:          {version: "v1", cluster: true},
	{Group: "storage.k8s.io", Kind: "StorageClass"}:       {version: "v1", cluster: true},
	{Group: "storage.k8s.io", Kind: "CSINode"}:            {version: "v1", cluster: true},
	{Group: "storage.k8s.io", Kind: "CSIDriver"}:          {version: "v1", cluster: true},
	{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}: {version: "v1"},

	{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}: {version: "v1alpha1", custom: func() client.Object { return &podgroupv1alpha1.PodGroup{} }},

	{Group: "karpenter.sh", Kind: "NodePool"}:          {version: "v1", cluster: true, custom: func() client.Object { return &karpv1.NodePool{} }},
	{Group: "karpenter.sh", Kind: "NodeClaim"}:         {version: "v1", cluster: true, custom: func() client.Object { return &karpv1.NodeClaim{} }},
	{Group: "karpenter.sh", Kind: "NodeOverlay"}:       {version: "v1alpha1", cluster: true, custom: func() client.Object { return &karpv1alpha1.NodeOverlay{} }},
	{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass"}: {version: "v1", cluster: true, custom: func() client.Object { return &ec2nc.EC2NodeClass{} }},

	{Group: "karpenter.sh", Kind: "Provisioner"}:          {version: "v1alpha5", cluster: true, custom: func() client.Object { return &legacy.Provisioner{} }},
	{Group: "karpenter.k8s.aws", Kind: "AWSNodeTemplate"}: {version: "v1alpha1", cluster: true, custom: func() client.Object { return &legacy.AWSNodeTemplate{} }},
}

// apart are ignored kinds that get an explanation.
var apart = map[schema.GroupKind]string{
	{Group: "batch", Kind: "CronJob"}:                       "is ignored: it is not known when its jobs will run",
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: "is ignored: its target is planned with the replicas in its own spec",
	{Kind: "ResourceQuota"}:                                 "is ignored: pods are planned as if no quota limited them",
	{Kind: "ReplicationController"}:                         "is ignored: make it a Deployment",
}

// indifferent are kinds that don't influence where pods are placed.
var indifferent = map[schema.GroupKind]bool{
	{Kind: "ConfigMap"}: true, {Kind: "Secret"}: true, {Kind: "ServiceAccount"}: true, {Kind: "Endpoints"}: true,
	{Group: "apps", Kind: "ControllerRevision"}:         true,
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}: true,
}

var indifferentGroups = map[string]bool{
	"rbac.authorization.k8s.io": true, "networking.k8s.io": true, "discovery.k8s.io": true, "events.k8s.io": true, "coordination.k8s.io": true,
	"apiextensions.k8s.io": true, "apiregistration.k8s.io": true, "admissionregistration.k8s.io": true, "certificates.k8s.io": true,
	"gateway.networking.k8s.io": true, "metrics.k8s.io": true, "flowcontrol.apiserver.k8s.io": true, "crd.k8s.amazonaws.com": true,
	"vpcresources.k8s.aws": true, "monitoring.coreos.com": true, "cert-manager.io": true,
}

// validate returns the API server's errors for a new object of one of Kubernetes' own kinds, in its internal form.
func validate(o runtime.Object) field.ErrorList {
	template := func(t *core.PodTemplateSpec) corevalidation.PodValidationOptions {
		return podutil.GetValidationOptionsFromPodTemplate(t, nil)
	}
	switch o := o.(type) {
	case *core.Pod:
		return corevalidation.ValidatePodCreate(o, podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil))
	case *core.Node:
		return corevalidation.ValidateNode(o)
	case *core.Namespace:
		return corevalidation.ValidateNamespace(o)
	case *core.LimitRange:
		return corevalidation.ValidateLimitRange(o)
	case *core.PersistentVolume:
		return corevalidation.ValidatePersistentVolume(o, corevalidation.ValidationOptionsForPersistentVolume(o, nil))
	case *core.PersistentVolumeClaim:
		return corevalidation.ValidatePersistentVolumeClaim(o, corevalidation.ValidationOptionsForPersistentVolumeClaimCreate())
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(o, template(&o.Spec.Template))
	case *apps.ReplicaSet:
		return appsvalidation.ValidateReplicaSet(o, template(&o.Spec.Template))
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSet(o, template(&o.Spec.Template))
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(o, template(&o.Spec.Template))
	case *batch.Job:
		return batchvalidation.ValidateJob(o, batchvalidation.JobValidationOptions{PodValidationOptions: template(&o.Spec.Template), RequirePrefixedLabels: true})
	case *scheduling.PriorityClass:
		return schedulingvalidation.ValidatePriorityClass(o)
	case *node.RuntimeClass:
		return nodevalidation.ValidateRuntimeClass(o)
	case *storage.StorageClass:
		return storagevalidation.ValidateStorageClass(o)
	case *storage.CSIStorageCapacity:
		return storagevalidation.ValidateCSIStorageCapacity(o, storagevalidation.CSIStorageCapacityValidateOptions{})
	}
	return nil
}
