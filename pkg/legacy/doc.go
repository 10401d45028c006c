// Package legacy holds the types of Karpenter's API of 2022 and 2023: karpenter.sh/v1alpha5 Provisioner and karpenter.k8s.aws/v1alpha1
// AWSNodeTemplate. The definitions are in manifests/crds; FromProvisioner in pkg/karpenter converts the fields to today's, and
// pkg/aws/nodeclass those of AWS.
//
// The package validates and converts nothing.
//
// controller-gen (sigs.k8s.io/controller-tools) generates zz_generated.deepcopy.go: controller-gen object paths=./pkg/legacy
//
// +kubebuilder:object:generate=true
package legacy
