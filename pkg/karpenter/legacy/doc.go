// Package legacy holds the types of Karpenter's API of 2022 and 2023: karpenter.sh/v1alpha5 Provisioner and
// karpenter.k8s.aws/v1alpha1 AWSNodeTemplate. The definitions are in manifests/crds, what the fields mean today is said
// in pkg/karpenter, FromProvisioner.
//
// It is not here to validate or to convert anything.
//
// zz_generated.deepcopy.go is made by controller-gen (sigs.k8s.io/controller-tools): controller-gen object paths=./pkg/karpenter/legacy
//
// +kubebuilder:object:generate=true
package legacy
