package draw

import (
	"fmt"
	"math/rand/v2"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
)

// Cut is how a world becomes smaller once everything runs, and how many nodes may then be emptied at a time.
type Cut struct {
	// Scale is the new size of Deployments, by name.
	Scale map[string]int32
	// Budget is the disruption budget of each pool: a number, or a percentage.
	Budget string
}

// everyCut is how many worlds there are for each that is cut: waiting for a consolidation takes half a minute.
const everyCut = 5

// cut draws the cut of every fifth world. It draws from numbers of its own, so that a world is otherwise as it would be without.
func (g *generator) cut() {
	if g.w.Seed%everyCut != 0 {
		return
	}
	r := rand.New(rand.NewPCG(g.w.Seed, 2))
	c := &Cut{Scale: map[string]int32{}, Budget: []string{"1", "34%", "100%"}[r.IntN(3)]}
	sizes := g.w.Pods()
	for _, burst := range g.w.Bursts {
		for _, o := range burst.Objects {
			if d, ok := o.(*appsv1.Deployment); ok && sizes[d.Name] > 1 && !g.w.Misfits[d.Name] {
				c.Scale[d.Name] = max(1, int32(sizes[d.Name])*int32(10+r.IntN(60))/100)
			}
		}
	}
	if len(c.Scale) > 0 {
		g.w.Cut = c
		g.tell("cut %v, budget %s", len(c.Scale), c.Budget)
	}
}

// AfterCut returns how many pods each application has after the cut. Jobs are left out: they create pods that were evicted anew after a
// back-off, which may take longer than a world waits, or count them as failures.
func (w *World) AfterCut() map[string]int {
	out := w.Pods()
	for name, n := range w.Cut.Scale {
		if _, ok := out[name]; !ok {
			panic(fmt.Sprintf("%s is cut and doesn't exist", name))
		}
		out[name] = int(n)
	}
	for _, burst := range w.Bursts {
		for _, o := range burst.Objects {
			if job, ok := o.(*batchv1.Job); ok {
				delete(out, job.Name)
			}
		}
	}
	return out
}
