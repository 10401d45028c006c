package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	simulated "github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// overhead is the scheduler's default of vmMemoryOverheadPercent.
const overhead = 0.075

// pools returns what instances are launched from: a pool for general use, whose nodes aren't disrupted.
func pools() []client.Object {
	pool := sandbox.NodePool("default", func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			sandbox.Require(corev1.LabelArchStable, "amd64", "arm64"),
			sandbox.Require("karpenter.sh/capacity-type", "on-demand"),
			sandbox.Require("karpenter.k8s.aws/instance-category", "c", "m", "r"),
		}
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	})
	pool.TypeMeta = metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodePool"}
	class := sandbox.NodeClass("default", func(c *ec2nc.EC2NodeClass) {
		c.TypeMeta = metav1.TypeMeta{APIVersion: "karpenter.k8s.aws/v1", Kind: "EC2NodeClass"}
	})
	return []client.Object{class, pool}
}

// planned returns what the nodes of one plan for all pods of the arrival cost, in $/h. It writes the manifests to a file in dir.
func planned(ctx context.Context, dir string, a *arrival) (float64, error) {
	objects := pools()
	for i := range a.workloads {
		objects = append(objects, a.workloads[i].deployment())
	}
	var all bytes.Buffer
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return 0, fmt.Errorf("writing manifests: %w", err)
		}
		all.WriteString("---\n")
		all.Write(text)
	}
	path := filepath.Join(dir, a.name+".yaml")
	if err := os.WriteFile(path, all.Bytes(), 0o644); err != nil {
		return 0, fmt.Errorf("writing manifests: %w", err)
	}
	set, err := manifest.Read(manifest.Options{Manifests: []string{path}, Definitions: karpenter.NewDefinitions(nodeclass.CRDs())})
	if err != nil {
		return 0, fmt.Errorf("reading manifests: %w", err)
	}
	types, err := offlineTypes()
	if err != nil {
		return 0, err
	}
	report, err := offline.Plan(ctx, set, offline.Settings{
		Catalog: types, NodeClass: nodeclass.Kind, Legacy: nodeclass.Legacy{}, Clock: clock.RealClock{},
		Plan: capacity.Options{Effort: provisioning.DefaultEffort},
	})
	if err != nil {
		return 0, fmt.Errorf("planning for all pods at once: %w", err)
	}
	if len(report.Refused) > 0 || report.Pods != a.pods() {
		return 0, fmt.Errorf("the plan for all pods at once has %d pods, of which it refuses %d; want %d", report.Pods, len(report.Refused), a.pods())
	}
	return report.TotalPerHour, nil
}

// offlineTypes returns the simulator's instance types as the product reads them from a file.
func offlineTypes() (*aws.Offline, error) {
	var file bytes.Buffer
	if err := simulated.Builtin().Write(&file); err != nil {
		return nil, fmt.Errorf("writing instance types: %w", err)
	}
	read, err := catalog.Read(&file)
	if err != nil {
		return nil, fmt.Errorf("reading instance types: %w", err)
	}
	types, err := aws.NewOffline(read, aws.OfflineConfig{VMMemoryOverheadPercent: overhead})
	if err != nil {
		return nil, fmt.Errorf("reading instance types: %w", err)
	}
	return types, nil
}
