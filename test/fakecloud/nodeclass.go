package fakecloud

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/awslabs/operatorpkg/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// Kind is TestNodeClass.
var Kind = cloudprovider.NodeClassKind{
	GroupVersionKind: schema.GroupVersionKind{Group: v1alpha1.Group, Version: "v1alpha1", Kind: "TestNodeClass"},
	Resource:         "testnodeclasses",
	New:              func() status.Object { return &v1alpha1.TestNodeClass{} },
	NewList:          func() cloudprovider.List { return &v1alpha1.TestNodeClassList{} },
	Definitions:      definitions,
	Finalizer:        v1alpha1.Group + "/termination",
	HashKey:          v1alpha1.Group + "/testnodeclass-hash",
	HashVersionKey:   v1alpha1.Group + "/testnodeclass-hash-version",
	HashVersion:      "v1",
	Hash:             hash,
	Images:           func(status.Object) []string { return []string{image} },
	Resolve:          func(nc, resolved status.Object) { nc.SetConditions(resolved.GetConditions()) },
	ArgsField:        "testNodeClasses",
}

// hash changes with every field of the spec.
func hash(nc status.Object, _ string) string {
	raw, err := json.Marshal(nc.(*v1alpha1.TestNodeClass).Spec)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

func definitions() (out []*apiextensionsv1.CustomResourceDefinition) {
	for _, crd := range v1alpha1.CRDs {
		out = append(out, crd.DeepCopy())
	}
	return out
}
