package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	simulated "github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// memoryOverhead is the scheduler's default of vmMemoryOverheadPercent.
const memoryOverhead = 0.075

// Planned returns the plan that knows all pods of the objects at once: pools, their classes and workloads. types are the simulator's instance
// types. It writes the objects to the file named in dir.
func Planned(ctx context.Context, dir, name string, types *simulated.Catalog, objects ...client.Object) (*offline.Report, error) {
	var all bytes.Buffer
	for _, o := range objects {
		text, err := document(o)
		if err != nil {
			return nil, fmt.Errorf("writing manifests: %w", err)
		}
		all.WriteString("---\n")
		all.Write(text)
	}
	path := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(path, all.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("writing manifests: %w", err)
	}
	set, err := manifest.Read(manifest.Options{Manifests: []string{path}, Definitions: karpenter.NewDefinitions(nodeclass.CRDs())})
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	offered, err := offlineTypes(types)
	if err != nil {
		return nil, fmt.Errorf("reading instance types: %w", err)
	}
	report, err := offline.Plan(ctx, set, offline.Settings{
		Catalog: offered, NodeClass: nodeclass.Kind, Legacy: nodeclass.Legacy{}, Clock: clock.RealClock{},
		Plan: capacity.Options{Effort: provisioning.DefaultEffort},
	})
	if err != nil {
		return nil, fmt.Errorf("planning for all pods at once: %w", err)
	}
	return report, nil
}

// document returns an object as YAML, with its kind.
func document(o client.Object) ([]byte, error) {
	kind, err := apiutil.GVKForObject(o, cluster.Scheme)
	if err != nil {
		return nil, err
	}
	o = o.DeepCopyObject().(client.Object)
	o.GetObjectKind().SetGroupVersionKind(kind)
	return yaml.Marshal(o)
}

// offlineTypes returns the simulator's instance types as the product reads them from a file.
func offlineTypes(types *simulated.Catalog) (*aws.Offline, error) {
	var file bytes.Buffer
	if err := types.Write(&file); err != nil {
		return nil, err
	}
	read, err := catalog.Read(&file)
	if err != nil {
		return nil, err
	}
	return aws.NewOffline(read, aws.OfflineConfig{VMMemoryOverheadPercent: memoryOverhead})
}
