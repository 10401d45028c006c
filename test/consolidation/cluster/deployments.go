package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/dovetail-scheduler/dovetail/test/quality/workload"
)

// Deployments returns a workload of 500 Deployments of different sizes: most pods are
// small, some need half a node. The distributions are fitted to the study that the emulation of Karpenter is tested with; its own list of
// pods isn't part of this repository.
func Deployments() *workload.Workload {
	const (
		seed        = 5
		deployments = 500
		cpu         = 500 // median, milli-CPU
		ratio       = 3.5 // median, GiB of memory per vCPU
		replicas    = 6
		mostCPU     = 15_000 // what fits a node
		mostMemory  = 100_000
	)
	random := rand.New(rand.NewPCG(seed, 3))
	lognormal := func(sigma float64) float64 { return math.Exp(random.NormFloat64() * sigma) }
	w := &workload.Workload{
		Name:    "deployments",
		Source:  fmt.Sprintf("synthetic, seed %d", seed),
		Pool:    workload.Pool{Categories: []string{"c", "m", "r"}, MinGeneration: 3, Archs: []string{"amd64", "arm64"}, CapacityTypes: []string{"on-demand"}},
		Daemons: []workload.Daemon{{Name: "cni", CPU: 50, Mem: 128}, {Name: "kube-proxy", CPU: 100, Mem: 64}, {Name: "log-agent", CPU: 100, Mem: 256}},
	}
	for i := range deployments {
		milli := cpu * lognormal(1)
		mib := milli * 1.024 * ratio * lognormal(0.7)
		g := workload.Group{App: fmt.Sprintf("app-%d", i), Count: 1 + int(replicas*lognormal(1)),
			CPU: max(50, int64(math.Round(milli/50)*50)), Mem: max(64, int64(math.Round(mib/64)*64))}
		if g.CPU <= mostCPU && g.Mem <= mostMemory {
			w.Groups = append(w.Groups, g)
			w.Pods += g.Count
		}
	}
	return w
}
