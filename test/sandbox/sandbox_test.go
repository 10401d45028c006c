package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

func TestExamplesAreValid(t *testing.T) {
	objects, err := Examples()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetObjectKind().GroupVersionKind().Kind+"/"+o.GetName())
	}
	if got, want := strings.Join(kinds, " "), "EC2NodeClass/default NodePool/default NodePool/arm64"; got != want {
		t.Errorf("the examples are %s, want %s", got, want)
	}
}

// A killed scheduler restarts with the same configuration, and the system stops without leaving anything behind.
func TestSchedulerRestarts(t *testing.T) {
	s := ForTest(t, Options{EC2: ec2.Config{Speed: 100}})
	if _, err := s.Scheduler.Get(t.Context(), "/metrics"); err != nil {
		t.Error(err)
	}
	s.Scheduler.Kill()
	if s.Failed() == nil {
		t.Error("a killed scheduler is not reported")
	}
	if err := s.Scheduler.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Failed(); err != nil {
		t.Error(err)
	}
	if !s.Scheduler.Stop() {
		t.Error("the scheduler didn't end within ten seconds of SIGTERM")
	}
}

// As a replacement of the cluster's scheduler it has the user, lease and profile name of that one.
func TestReplacesTheScheduler(t *testing.T) {
	s := ForTest(t, Options{Cluster: cluster.Options{Manifests: "replace"}, EC2: ec2.Config{Speed: 100}})
	staticPod, err := os.ReadFile(filepath.Join("..", "..", "manifests", "replace", "static-pod", "kube-scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), staticPod); err != nil {
		t.Error(err)
	}
	lease := &coordinationv1.Lease{}
	if err := s.Client().Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "kube-scheduler"}, lease); err != nil {
		t.Errorf("the lease of the scheduler that it replaces: %v", err)
	}
}
