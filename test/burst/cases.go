package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// arrival is one burst: workloads, and how their pods come.
type arrival struct {
	name      string
	workloads []workload
	// perSecond is the controllers' limit of requests.
	perSecond int
	// apart is the time between two Deployments; zero: all are created at once (judge.go says what that is).
	apart time.Duration
	// sequence: one workload's pods are created after the other's.
	sequence bool
}

// workload is a Deployment.
type workload struct {
	name    string
	pods    int
	cpu     int64 // milli-CPU
	memory  int64 // MiB
	zones   bool  // spread evenly over zones
	another bool  // no two of its pods share a node
}

func (a *arrival) pods() (n int) {
	for _, w := range a.workloads {
		n += w.pods
	}
	return n
}

// arriving is for how many seconds the pods of a burst may arrive.
const arriving = 50

// arrivals returns the bursts of the given sizes and rates, and those that have a size of their own. left are the names of those whose pods would
// arrive for too long.
func arrivals(sizes, rates []int) (out []arrival, left []string) {
	for _, rate := range rates {
		for _, n := range sizes {
			name := fmt.Sprintf("mixed-%d-at-%d", n, rate)
			if n > arriving*rate {
				left = append(left, name)
				continue
			}
			out = append(out, arrival{name: name, workloads: mixed(n, uint64(n)), perSecond: rate})
		}
	}
	n, rate := slices.Min(sizes), slices.Max(rates)
	for _, size := range sizes {
		if size <= 1000 {
			n = max(n, size)
		}
	}
	spread, lonely := mixed(n, 77), mixed(min(n, 100), 78)
	for i := range spread {
		spread[i].zones = true
	}
	for i := range lonely {
		lonely[i].another = i%2 == 0
	}
	slow := slices.Min(rates)
	return append(out,
		arrival{name: fmt.Sprintf("zones-%d-at-%d", n, rate), workloads: spread, perSecond: rate},
		arrival{name: fmt.Sprintf("anti-affinity-%d-at-%d", min(n, 100), rate), workloads: lonely, perSecond: rate},
		arrival{name: fmt.Sprintf("sequence-%d-at-%d", n, min(rate, 100)), workloads: mixed(n, 79), perSecond: min(rate, 100), sequence: true},
		arrival{name: fmt.Sprintf("ten-small-at-%d", slow), workloads: small(10, 80), perSecond: slow},
		arrival{name: fmt.Sprintf("ten-small-at-%d", rate), workloads: small(10, 81), perSecond: rate},
		arrival{name: "six-in-160ms", workloads: same(6), perSecond: 100, apart: 32 * time.Millisecond},
	), left
}

// lone is a pod that comes alone.
func lone() arrival {
	return arrival{name: "lone", workloads: same(1), perSecond: 100}
}

// shapes are milli-CPU and MiB of memory: what services and batch pods usually request.
var shapes = [][2]int64{
	{100, 128}, {250, 512}, {250, 1024}, {500, 512}, {500, 2048}, {1000, 1024}, {1000, 4096}, {2000, 4096}, {2000, 16384}, {4000, 8192},
}

// mixed returns Deployments of different shapes with n pods in all.
func mixed(n int, seed uint64) (out []workload) {
	random := rand.New(rand.NewPCG(seed, 20))
	count := min(max(5, n/50), 20)
	shares, sum := make([]float64, count), 0.0
	for i := range shares {
		shares[i] = 0.3 + random.Float64()
		sum += shares[i]
	}
	left := n
	for i := range count {
		pods := max(1, int(float64(n)*shares[i]/sum))
		if i == count-1 || pods > left {
			pods = left
		}
		left -= pods
		shape := shapes[random.IntN(len(shapes))]
		out = append(out, workload{name: fmt.Sprintf("app-%d", i), pods: pods, cpu: shape[0], memory: shape[1]})
	}
	return out
}

// small returns Deployments of one to three pods.
func small(n int, seed uint64) (out []workload) {
	random := rand.New(rand.NewPCG(seed, 20))
	for i := range n {
		shape := shapes[random.IntN(len(shapes)-3)]
		out = append(out, workload{name: fmt.Sprintf("small-%d", i), pods: 1 + random.IntN(3), cpu: shape[0], memory: shape[1]})
	}
	return out
}

// same returns Deployments of one pod each, all of one shape.
func same(n int) (out []workload) {
	for i := range n {
		out = append(out, workload{name: fmt.Sprintf("one-%d", i), pods: 1, cpu: 250, memory: 1024})
	}
	return out
}

// deployment returns the workload as an object.
func (w *workload) deployment() *appsv1.Deployment {
	labels := map[string]string{"app": w.name}
	spec := corev1.PodSpec{
		SchedulerName:                 sandbox.SchedulerName,
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.invalid/main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(w.cpu, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(w.memory<<20, resource.BinarySI),
			}},
		}},
	}
	own := &metav1.LabelSelector{MatchLabels: labels}
	if w.zones {
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: own}}
	}
	if w.another {
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: own}}}}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: w.name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(w.pods)), Selector: own,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// selected returns the arrivals whose names contain one of the texts, separated by commas; all if there is none.
func selected(all []arrival, texts string) (out []arrival) {
	for _, a := range all {
		if texts == "" || slices.ContainsFunc(strings.Split(texts, ","), func(t string) bool { return strings.Contains(a.name, t) }) {
			out = append(out, a)
		}
	}
	return out
}
