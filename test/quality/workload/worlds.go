package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// family is a kind of random world: how many applications, of which shapes, with what constraints, and which types they meet.
type family struct {
	name string
	// apps and pods are ranges, from which numbers are drawn evenly by their logarithm: of applications, and of each one's pods.
	apps, pods [2]float64
	// cpu is a range of milli-CPU, ratio one of GiB for each core; both are drawn in the same way, and rounded to round or not at all.
	cpu, ratio [2]float64
	round      bool
	pool       func(d *rand.Rand) Pool
	change     func(d *rand.Rand, g *Group)
}

// families begin with those where plans are farthest from the bound.
var families = []family{
	{name: "host-limits-few-types", apps: [2]float64{40, 250}, pods: [2]float64{1, 12}, cpu: [2]float64{100, 6000}, ratio: [2]float64{0.5, 12}, pool: fewTypes, change: hostLimits},
	{name: "odd-shapes-few-types", apps: [2]float64{20, 200}, pods: [2]float64{1, 40}, cpu: [2]float64{150, 14000}, ratio: [2]float64{0.2, 30}, pool: fewTypes},
	{name: "small-classes", apps: [2]float64{150, 600}, pods: [2]float64{1, 4}, cpu: [2]float64{50, 4000}, ratio: [2]float64{0.5, 10}, pool: anyTypes, change: mixed},
	{name: "host-limits", apps: [2]float64{40, 300}, pods: [2]float64{2, 30}, cpu: [2]float64{100, 8000}, ratio: [2]float64{0.5, 12}, round: true, pool: anyTypes, change: hostLimits},
	{name: "big-pods", apps: [2]float64{8, 40}, pods: [2]float64{1, 12}, cpu: [2]float64{6000, 90000}, ratio: [2]float64{0.8, 12}, pool: anyTypes},
	{name: "zones", apps: [2]float64{30, 200}, pods: [2]float64{2, 60}, cpu: [2]float64{200, 6000}, ratio: [2]float64{0.5, 10}, round: true, pool: anyTypes, change: zones},
	{name: "mixed", apps: [2]float64{50, 500}, pods: [2]float64{1, 60}, cpu: [2]float64{50, 8000}, ratio: [2]float64{0.4, 12}, round: true, pool: anyTypes, change: mixed},
	{name: "services", apps: [2]float64{20, 300}, pods: [2]float64{2, 100}, cpu: [2]float64{50, 4000}, ratio: [2]float64{0.5, 10}, round: true, pool: anyTypes},
}

// Worlds returns random workloads, the first n of a fixed list: the same ones each time. Each belongs to the next family in turn.
func Worlds(n int) []*Workload {
	out := make([]*Workload, 0, n)
	for seed := range n {
		out = append(out, world(seed))
	}
	return out
}

func world(seed int) *Workload {
	f := families[seed%len(families)]
	d := rand.New(rand.NewPCG(20, uint64(seed)))
	w := &Workload{Name: fmt.Sprintf("%s-%d", f.name, seed/len(families)+1), Source: "random", Pool: f.pool(d), Daemons: agents}
	for a := range int(drawn(d, f.apps)) {
		g := Group{App: fmt.Sprintf("app-%d", a), Count: int(math.Round(drawn(d, f.pods))), CPU: int64(drawn(d, f.cpu))}
		g.Mem = int64(float64(g.CPU) / 1000 * 1024 * drawn(d, f.ratio))
		if f.round {
			g.CPU, g.Mem = rounded(g.CPU, 50), rounded(g.Mem, 64)
		}
		g.Mem = min(max(g.Mem, 16), 400<<10)
		if f.change != nil {
			f.change(d, &g)
		}
		w.Groups = append(w.Groups, g)
		w.Pods += g.Count
	}
	return w
}

// drawn returns a number from a range, evenly distributed by its logarithm.
func drawn(d *rand.Rand, of [2]float64) float64 {
	return of[0] * math.Pow(of[1]/of[0], d.Float64())
}

func rounded(v, to int64) int64 { return max(to, (v+to/2)/to*to) }

func anyTypes(d *rand.Rand) Pool {
	p := Pool{Categories: []string{"c", "m", "r"}, MinGeneration: 3 + d.IntN(4), Archs: []string{"amd64", "arm64"}, CapacityTypes: []string{"on-demand"}}
	if d.IntN(3) == 0 {
		p.CapacityTypes = append(p.CapacityTypes, "spot")
	}
	if d.IntN(3) == 0 {
		p.Archs = p.Archs[:1]
	}
	return p
}

// fewTypes are those of one or two categories, of one architecture, and of late generations.
func fewTypes(d *rand.Rand) Pool {
	all := []string{"c", "m", "r"}
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return Pool{Categories: all[:1+d.IntN(2)], MinGeneration: 5 + d.IntN(3), Archs: []string{pick(d, []string{"amd64", "arm64"})}, CapacityTypes: []string{"on-demand"}}
}

func hostLimits(d *rand.Rand, g *Group) {
	switch d.IntN(4) {
	case 0, 1:
		g.AntiHost = true
	case 2:
		g.MaxPerHost = int32(1 + d.IntN(3))
	}
}

func zones(d *rand.Rand, g *Group) {
	switch d.IntN(6) {
	case 0:
		g.Zone = pick(d, Zones)
	case 1:
		g.ZoneAffinity = true
	default:
		g.SpreadZone = 1
	}
}

func mixed(d *rand.Rand, g *Group) {
	switch d.IntN(12) {
	case 0, 1:
		g.SpreadZone = 1
	case 2:
		g.AntiHost = true
	case 3:
		g.MaxPerHost = int32(1 + d.IntN(3))
	case 4:
		g.Zone = pick(d, Zones)
	case 5:
		g.Arch = "amd64"
	case 6:
		g.AntiHost, g.SpreadZone = true, 1
	}
}
