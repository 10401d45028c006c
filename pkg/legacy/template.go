package legacy

import (
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AWSNodeTemplate holds the AWS settings of the Provisioners that refer to it. It preceded the EC2NodeClass.
//
// +kubebuilder:object:root=true
type AWSNodeTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AWSNodeTemplateSpec   `json:"spec,omitempty"`
	Status AWSNodeTemplateStatus `json:"status,omitempty"`
}

// AWSNodeTemplateList is a list of AWSNodeTemplates.
//
// +kubebuilder:object:root=true
type AWSNodeTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AWSNodeTemplate `json:"items"`
}

// AWSNodeTemplateSpec holds the settings that a Provisioner can have inline, and more.
type AWSNodeTemplateSpec struct {
	AWS `json:",inline"`

	UserData *string `json:"userData,omitempty"`
	// AMISelector selects images by tags, and by the keys aws::name, aws::owners and aws::ids.
	AMISelector        map[string]string `json:"amiSelector,omitempty"`
	DetailedMonitoring *bool             `json:"detailedMonitoring,omitempty"`
}

// Provider holds the AWS settings that a Provisioner has inline.
type Provider struct {
	// TypeMeta, if set, is extensions.karpenter.sh/v1alpha1 AWS.
	metav1.TypeMeta `json:",inline"`
	AWS             `json:",inline"`
}

// AWS holds the settings that Provider and AWSNodeTemplateSpec have in common.
type AWS struct {
	AMIFamily       *string `json:"amiFamily,omitempty"`
	Context         *string `json:"context,omitempty"`
	InstanceProfile *string `json:"instanceProfile,omitempty"`
	// SubnetSelector and SecurityGroupSelector are tags, all of which must match. A value may contain wildcards and may be a list
	// separated by commas. The keys aws-ids and aws::ids select by ids.
	SubnetSelector        map[string]string `json:"subnetSelector,omitempty"`
	SecurityGroupSelector map[string]string `json:"securityGroupSelector,omitempty"`
	Tags                  map[string]string `json:"tags,omitempty"`
	// LaunchTemplate is the name of a launch template that the user maintains.
	LaunchTemplate      *string              `json:"launchTemplate,omitempty"`
	MetadataOptions     *MetadataOptions     `json:"metadataOptions,omitempty"`
	BlockDeviceMappings []BlockDeviceMapping `json:"blockDeviceMappings,omitempty"`
}

// MetadataOptions configure the instances' metadata service.
type MetadataOptions struct {
	HTTPEndpoint            *string `json:"httpEndpoint,omitempty"`
	HTTPProtocolIPv6        *string `json:"httpProtocolIPv6,omitempty"`
	HTTPPutResponseHopLimit *int64  `json:"httpPutResponseHopLimit,omitempty"`
	HTTPTokens              *string `json:"httpTokens,omitempty"`
}

// BlockDeviceMapping is one block device of an instance.
type BlockDeviceMapping struct {
	DeviceName  *string      `json:"deviceName,omitempty"`
	VirtualName *string      `json:"virtualName,omitempty"`
	EBS         *BlockDevice `json:"ebs,omitempty"`
}

// BlockDevice is an EBS volume.
type BlockDevice struct {
	DeleteOnTermination *bool              `json:"deleteOnTermination,omitempty"`
	Encrypted           *bool              `json:"encrypted,omitempty"`
	IOPS                *int64             `json:"iops,omitempty"`
	KMSKeyID            *string            `json:"kmsKeyID,omitempty"`
	SnapshotID          *string            `json:"snapshotID,omitempty"`
	Throughput          *int64             `json:"throughput,omitempty"`
	VolumeSize          *resource.Quantity `json:"volumeSize,omitempty"`
	VolumeType          *string            `json:"volumeType,omitempty"`
}

// AWSNodeTemplateStatus lists what the selectors select.
type AWSNodeTemplateStatus struct {
	Subnets        []Subnet           `json:"subnets,omitempty"`
	SecurityGroups []SecurityGroup    `json:"securityGroups,omitempty"`
	AMIs           []AMI              `json:"amis,omitempty"`
	Conditions     []status.Condition `json:"conditions,omitempty"`
}

// Subnet is a selected subnet.
type Subnet struct {
	ID   string `json:"id,omitempty"`
	Zone string `json:"zone,omitempty"`
}

// SecurityGroup is a selected security group.
type SecurityGroup struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// AMI is a selected image, with the requirements of the instance types it is for.
type AMI struct {
	ID           string                           `json:"id"`
	Name         string                           `json:"name,omitempty"`
	Requirements []corev1.NodeSelectorRequirement `json:"requirements,omitempty"`
}

// TemplateConditions are the conditions about what the selectors select, named like those of an EC2NodeClass.
var TemplateConditions = []string{"SubnetsReady", "SecurityGroupsReady", "AMIsReady", "InstanceProfileReady"}

// StatusConditions implements status.Object.
func (t *AWSNodeTemplate) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions(append([]string{ConditionValidationSucceeded}, TemplateConditions...)...).For(t, opts...)
}

// GetConditions implements status.Object.
func (t *AWSNodeTemplate) GetConditions() []status.Condition { return t.Status.Conditions }

// SetConditions implements status.Object.
func (t *AWSNodeTemplate) SetConditions(c []status.Condition) { t.Status.Conditions = c }
