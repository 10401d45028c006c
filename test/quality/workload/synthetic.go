package workload

import (
	"fmt"
	"math/rand/v2"
)

// style is a kind of synthetic workload: a number of applications whose shapes are drawn from lists.
type style struct {
	name string
	apps int
	// counts are numbers of pods per application.
	counts []int
	cpu    []int64 // milli-CPU
	mem    []int64 // MiB
	pool   Pool
	// change adds what some of the applications require beside resources.
	change func(d *rand.Rand, g *Group)
}

var (
	bothArchs  = Pool{Categories: []string{"c", "m", "r"}, MinGeneration: 3, Archs: []string{"amd64", "arm64"}, CapacityTypes: []string{"on-demand"}}
	withSpot   = Pool{Categories: []string{"c", "m", "r"}, MinGeneration: 3, Archs: []string{"amd64", "arm64"}, CapacityTypes: []string{"on-demand", "spot"}}
	onlyAMD64  = Pool{Categories: []string{"c", "m", "r"}, MinGeneration: 3, Archs: []string{"amd64"}, CapacityTypes: []string{"on-demand"}}
	agents     = []Daemon{{"cni", 50, 128}, {"kube-proxy", 100, 64}, {"log-agent", 100, 256}}
	smallCPU   = []int64{50, 100, 200, 250, 500, 1000}
	smallMem   = []int64{64, 128, 256, 512, 1024, 2048}
	serviceCPU = []int64{250, 500, 1000, 2000, 4000}
	serviceMem = []int64{512, 1024, 2048, 4096, 8192}
)

var styles = []style{
	{name: "small-services", apps: 200, counts: []int{2, 3, 5, 10, 20, 60}, cpu: smallCPU, mem: smallMem, pool: bothArchs},
	{name: "memory-heavy", apps: 60, counts: []int{5, 10, 20, 50}, cpu: []int64{250, 500, 1000, 2000}, mem: []int64{4096, 6144, 8192, 12288, 16384, 32768}, pool: bothArchs},
	{name: "cpu-heavy", apps: 60, counts: []int{5, 10, 20, 50}, cpu: []int64{1000, 2000, 3000, 4000, 7000}, mem: []int64{512, 1024, 2048, 4096}, pool: bothArchs},
	{name: "zone-spread", apps: 80, counts: []int{3, 6, 12, 30, 60}, cpu: serviceCPU, mem: serviceMem, pool: bothArchs,
		change: func(_ *rand.Rand, g *Group) { g.SpreadZone = 1 }},
	{name: "host-anti-affinity", apps: 120, counts: []int{3, 5, 10, 25}, cpu: serviceCPU, mem: serviceMem, pool: onlyAMD64,
		change: func(d *rand.Rand, g *Group) { g.AntiHost = d.IntN(2) == 0 }},
	{name: "mixed-selectors-spot", apps: 120, counts: []int{5, 10, 20, 40}, cpu: serviceCPU, mem: serviceMem, pool: withSpot,
		change: func(d *rand.Rand, g *Group) {
			switch d.IntN(6) {
			case 0:
				g.Arch = "amd64"
			case 1:
				g.CapacityType = "on-demand"
			case 2:
				g.Zone = Zones[d.IntN(len(Zones))]
			case 3:
				g.Arch, g.CapacityType = "arm64", "spot"
			}
		}},
	{name: "few-big-pods", apps: 25, counts: []int{1, 2, 3, 5, 10}, cpu: []int64{8000, 16000, 24000, 30000, 48000, 64000}, mem: []int64{16384, 32768, 65536, 131072, 262144}, pool: bothArchs},
	{name: "deployments", apps: 500, counts: []int{1, 2, 3, 5, 10, 30}, cpu: []int64{100, 250, 500, 1000, 2000, 4000}, mem: []int64{128, 256, 512, 1024, 2048, 4096, 8192}, pool: bothArchs,
		change: func(d *rand.Rand, g *Group) { // some of each constraint, as in real clusters
			switch d.IntN(8) {
			case 0:
				g.SpreadZone = 1
			case 1:
				g.AntiHost = true
			case 2:
				g.MaxPerHost = 2
			}
		}},
}

// Synthetic returns workloads of the kinds that users have, drawn with a seed.
func Synthetic(seed uint64) []*Workload {
	var out []*Workload
	for i, s := range styles {
		d := rand.New(rand.NewPCG(seed, uint64(i)))
		w := &Workload{Name: s.name, Source: fmt.Sprintf("synthetic, seed %d", seed), Pool: s.pool, Daemons: agents}
		for a := range s.apps {
			g := Group{App: fmt.Sprintf("app-%d", a), Count: pick(d, s.counts), CPU: pick(d, s.cpu), Mem: pick(d, s.mem)}
			if s.change != nil {
				s.change(d, &g)
			}
			w.Groups = append(w.Groups, g)
			w.Pods += g.Count
		}
		out = append(out, w)
	}
	return out
}

func pick[T any](d *rand.Rand, from []T) T { return from[d.IntN(len(from))] }
