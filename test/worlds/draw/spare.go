package draw

import (
	"math/rand/v2"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
)

const (
	// everyBuffer and everyRepair are how many worlds there are for each that has a CapacityBuffer, and for each in which a node becomes unhealthy.
	everyBuffer = 4
	everyRepair = 7
)

// BufferName names the CapacityBuffer of a world, and its PodTemplate.
const BufferName = "spare"

// AfterRepair returns how many pods each application has after a repair. Bare pods are left out: nobody makes them again. So are Jobs (see
// AfterCut).
func (w *World) AfterRepair() map[string]int {
	out := w.Pods()
	for _, burst := range w.Bursts {
		for _, o := range burst.Objects {
			switch o.(type) {
			case *batchv1.Job:
				delete(out, o.GetName())
			case *corev1.Pod:
				delete(out, o.GetLabels()[AppLabel])
			}
		}
	}
	return out
}

// spare draws a CapacityBuffer, and whether a node becomes unhealthy once everything runs. It draws from numbers of its own, so that a world is
// otherwise as it would be without. A world that is cut has neither: what is judged there is what its pods need.
func (g *generator) spare() {
	if g.w.Cut != nil {
		return
	}
	r := rand.New(rand.NewPCG(g.w.Seed, 3))
	if g.w.Seed%everyRepair == 1 {
		g.w.Repair = true
		g.tell("a node fails")
	}
	if g.w.Seed%everyBuffer != 1 {
		return
	}
	g.w.Chunks = 1 + r.IntN(6)
	chunk := g.pod(BufferName)
	chunk.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse([]string{"250m", "500m", "1"}[r.IntN(3)]), corev1.ResourceMemory: resource.MustParse("256Mi"),
	}
	n := int32(g.w.Chunks)
	g.w.Setup = append(g.w.Setup, &corev1.PodTemplate{ObjectMeta: g.meta(BufferName), Template: *chunk},
		&autoscalingv1beta1.CapacityBuffer{ObjectMeta: g.meta(BufferName), Spec: autoscalingv1beta1.CapacityBufferSpec{
			PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: BufferName}, Replicas: &n}})
	g.tell("%d chunks", n)
}
