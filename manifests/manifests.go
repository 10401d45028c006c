// Package manifests holds the YAML that installs Dovetail, so that the demo and the tests run under exactly what is shipped.
//
// It is not for the product: the scheduler never applies its own manifests.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// ConfigKey is the key of the KubeSchedulerConfiguration in the shipped ConfigMap, and its file name in the container.
const ConfigKey = "scheduler-config.yaml"

//go:embed iam/policy.json
var iamPolicy []byte

// IAMPolicy returns the IAM policy of Dovetail's role, with placeholders like ${Cluster} as in CloudFormation.
func IAMPolicy() []byte { return slices.Clone(iamPolicy) }

//go:embed admission/*.yaml network/*.yaml crds/*.yaml examples/*.yaml examples/kubeadm/*.yaml examples/profile/*.yaml examples/provisioner/*.yaml examples/teams/*.yaml metrics/*.yaml secondary/*.yaml replace/*.yaml surge/*.yaml
var files embed.FS

// Folder returns the YAML files of one folder (admission, crds, examples or one below it, metrics, network, secondary, replace, surge), by name, sorted as kubectl would apply them.
func Folder(name string) ([][]byte, error) {
	names, err := fs.Glob(files, path.Join(name, "*.yaml"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no manifests in folder %q", name)
	}
	var contents [][]byte
	for _, n := range names {
		data, err := files.ReadFile(n)
		if err != nil {
			return nil, fmt.Errorf("reading manifest %s: %w", n, err)
		}
		contents = append(contents, data)
	}
	return contents, nil
}
