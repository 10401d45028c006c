package packing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machines returns candidates of three families in doubling sizes: cpu in milli-CPU, memory in MiB, pods.
func machines() []Candidate {
	var out []Candidate
	for _, f := range []struct {
		perCPU float64
		gib    int64
	}{{0.0425, 2}, {0.048, 4}, {0.063, 8}} {
		for cpu := int64(2); cpu <= 64; cpu *= 2 {
			out = append(out, Candidate{Room: []int64{cpu*1000 - 90 - cpu*3, cpu*f.gib*1024*92/100 - 600, 28 * min(8, cpu)}, Price: float64(cpu) * f.perCPU})
		}
	}
	return out
}

func every(candidates []Candidate) Bits {
	b := NewBits(len(candidates))
	for i := range candidates {
		b.Set(i)
	}
	return b
}

// optimum returns the least cost of packing pieces into candidates, by trying all partitions: for few pieces only.
func optimum(p *Problem) float64 {
	var things []int
	for i := range p.Items {
		for range p.Items[i].Count {
			things = append(things, i)
		}
	}
	n := len(things)
	alone := make([]float64, 1<<n)
	for set := 1; set < 1<<n; set++ {
		alone[set] = math.Inf(1)
		need := make([]int64, len(p.Candidates[0].Room))
		may := every(p.Candidates)
		count := map[int]int{}
		for t, i := range things {
			if set&(1<<t) != 0 {
				for d, v := range p.Items[i].Need {
					need[d] += v
				}
				may.And(p.Items[i].Candidates)
				count[i]++
			}
		}
		if !keepsRules(p, count) {
			continue
		}
		for b := range p.Candidates {
			if may.Has(b) && Fits(p.Candidates[b].Room, need, 1) == 1 {
				alone[set] = min(alone[set], p.Candidates[b].Price)
			}
		}
	}
	best := make([]float64, 1<<n)
	for set := 1; set < 1<<n; set++ {
		best[set] = math.Inf(1)
		first := set & -set
		for sub := set; sub > 0; sub = (sub - 1) & set {
			if sub&first != 0 {
				best[set] = min(best[set], alone[sub]+best[set&^sub])
			}
		}
	}
	return best[1<<n-1]
}

// keepsRules implements Rule's documentation a second time.
func keepsRules(p *Problem, count map[int]int) bool {
	for _, r := range p.Rules {
		members := 0
		for _, m := range r.Members {
			members += count[m]
		}
		for _, o := range r.Owners {
			if count[o.Item] > 0 && members > o.Limit {
				return false
			}
		}
	}
	return true
}

// checkResult checks that a result is a packing of the problem.
func checkResult(p *Problem, r *Result) error {
	left := make([]int, len(p.Items))
	for i := range p.Items {
		left[i] = p.Items[i].Count
	}
	budgets := append([]int64(nil), p.Budgets...)
	cost := 0.0
	for _, l := range r.Loads {
		room := append([]int64(nil), p.Candidates[l.Candidate].Room...)
		count := map[int]int{}
		for _, s := range l.Shares {
			it := &p.Items[s.Item]
			if !it.Candidates.Has(l.Candidate) || s.Count <= 0 || Fits(room, it.Need, s.Count) < s.Count {
				return fmt.Errorf("%d of item %d don't fit bin %d", s.Count, s.Item, l.Candidate)
			}
			Take(room, it.Need, s.Count)
			count[s.Item] += s.Count
			left[s.Item] -= s.Count * l.Times
		}
		if len(l.Shares) == 0 || l.Times <= 0 || !keepsRules(p, count) {
			return fmt.Errorf("load %v is empty or breaks a rule", l)
		}
		for _, u := range p.Candidates[l.Candidate].Uses {
			if budgets[u.Budget] -= u.Amount * int64(l.Times); budgets[u.Budget] < 0 {
				return fmt.Errorf("budget %d is overdrawn", u.Budget)
			}
		}
		cost += p.Candidates[l.Candidate].Price * float64(l.Times)
	}
	if diff := cmp.Diff(left, r.Left); diff != "" {
		return fmt.Errorf("left (-counted +told):\n%s", diff)
	}
	if math.Abs(cost-r.Cost) > 1e-6*(1+cost) {
		return fmt.Errorf("costs %v, told %v", cost, r.Cost)
	}
	return nil
}

func randomProblem(d *rand.Rand, items, most int) *Problem {
	p := &Problem{Candidates: machines()}
	for range items {
		may := every(p.Candidates)
		if d.IntN(4) == 0 {
			for b := range p.Candidates {
				if b/6 == d.IntN(3) {
					may.Clear(b)
				}
			}
		}
		p.Items = append(p.Items, Item{Need: []int64{int64(100 + d.IntN(40)*100), int64(128 + d.IntN(60)*256), 1}, Count: 1 + d.IntN(most), Candidates: may})
	}
	if d.IntN(2) == 0 {
		rule := Rule{Members: []int{0}, Owners: []Owner{{0, 1 + d.IntN(2)}}}
		if items > 1 && d.IntN(2) == 0 {
			rule.Members = append(rule.Members, 1)
			if d.IntN(2) == 0 {
				rule.Owners = append(rule.Owners, Owner{1, rule.Owners[0].Limit})
			}
		}
		p.Rules = append(p.Rules, rule)
	}
	if items > 2 && d.IntN(3) == 0 {
		p.Rules = append(p.Rules, Rule{Members: []int{1}, Owners: []Owner{{2, 0}}}) // item 2 excludes item 1
	}
	return p
}

func TestSmallPackingsAreNearTheOptimum(t *testing.T) {
	for _, effort := range []int{0, 20000} {
		sum, worst, n := 0.0, 1.0, 0
		for seed := range uint64(150) {
			d := rand.New(rand.NewPCG(seed, 7))
			p := randomProblem(d, 1+d.IntN(4), 3)
			r := Pack(p, effort)
			if err := checkResult(p, r); err != nil {
				t.Fatalf("problem %d: %v", seed, err)
			}
			best := optimum(p)
			if r.Cost < best*(1-1e-9) || r.Bound > best*(1+1e-6) {
				t.Fatalf("problem %d: cost %v, bound %v, optimum %v", seed, r.Cost, r.Bound, best)
			}
			sum += math.Log(r.Cost / best)
			worst = max(worst, r.Cost/best)
			n++
		}
		mean := math.Exp(sum / float64(n))
		t.Logf("effort %d: mean %.4f worst %.3f", effort, mean, worst)
		if limit := map[int]float64{0: 1.05, 20000: 1.01}[effort]; mean > limit {
			t.Errorf("effort %d: mean cost over optimum %.4f, want %.2f at most", effort, mean, limit)
		}
	}
}

func TestRandomPackings(t *testing.T) {
	for seed := range uint64(60) {
		d := rand.New(rand.NewPCG(seed, 8))
		p := randomProblem(d, 1+d.IntN(30), 60)
		if d.IntN(3) == 0 { // a limit of cpu, and a candidate of which two can be bought
			p.Budgets = []int64{int64(d.IntN(400) * 1000), 2}
			for b := range p.Candidates {
				p.Candidates[b].Uses = []Use{{0, p.Candidates[b].Room[0]}}
			}
			p.Candidates[3].Uses = append(p.Candidates[3].Uses, Use{1, 1})
			p.Candidates[3].Price, p.Candidates[3].Scarce = 1e-7, true
		}
		for _, effort := range []int{0, 3000} {
			r := Pack(p, effort)
			if err := checkResult(p, r); err != nil {
				t.Fatalf("problem %d, effort %d: %v", seed, effort, err)
			}
			if plain := newKinds(p).apart(); plain.remaining() <= sum(r.Left) && plain.cost < r.Cost*(1-1e-9) {
				t.Fatalf("problem %d, effort %d: costs %v, %v with a bin per thing", seed, effort, r.Cost, plain.cost)
			}
			if r.Bound > r.Cost*(1+1e-9) && sum(r.Left) == 0 && p.Budgets == nil {
				t.Fatalf("problem %d, effort %d: costs %v, less than its bound %v", seed, effort, r.Cost, r.Bound)
			}
			if diff := cmp.Diff(r, Pack(p, effort)); diff != "" {
				t.Fatalf("problem %d, effort %d: packed differently again (-first +second):\n%s", seed, effort, diff)
			}
		}
	}
}

// placedOf returns the problem without budgets and with only those pieces that found a place.
func placedOf(p *Problem, r *Result) *Problem {
	out := *p
	out.Budgets, out.Items, out.Candidates = nil, slices.Clone(p.Items), slices.Clone(p.Candidates)
	for i := range out.Items {
		out.Items[i].Count -= r.Left[i]
	}
	for b := range out.Candidates {
		out.Candidates[b].Uses = nil
	}
	return &out
}

// The bound counts pieces that found a place: a piece that fits no candidate does not change it, and if budgets leave pieces out it holds for
// the rest.
func TestBoundIsOfWhatFoundAPlace(t *testing.T) {
	for seed := range uint64(80) {
		d := rand.New(rand.NewPCG(seed, 9))
		p := randomProblem(d, 1+d.IntN(4), 3)
		for _, effort := range []int{Quick, 0, 20000} {
			alone := Pack(p, effort)
			with := *p
			with.Items = append(slices.Clone(p.Items), Item{Need: []int64{1 << 40, 1, 1}, Count: 1 + d.IntN(3), Candidates: every(p.Candidates)})
			if got := Pack(&with, effort); math.Abs(got.Bound-alone.Bound) > 1e-9 {
				t.Fatalf("problem %d, effort %d: bound %v, with something that fits nowhere %v", seed, effort, alone.Bound, got.Bound)
			}
			with.Budgets = []int64{int64(d.IntN(40) * 1000)}
			with.Candidates = slices.Clone(p.Candidates)
			for b := range with.Candidates {
				with.Candidates[b].Uses = []Use{{0, with.Candidates[b].Room[0]}}
			}
			got := Pack(&with, effort)
			rest := placedOf(&with, got)
			if best := optimum(rest); got.Bound > best*(1+1e-6) {
				t.Fatalf("problem %d, effort %d: bound %v of what a budget leaves room for, optimum %v", seed, effort, got.Bound, best)
			}
			if again := Pack(rest, Quick); got.Bound < again.Bound*(1-1e-9) {
				t.Fatalf("problem %d, effort %d: bound %v of what a budget leaves room for, %v without the rest", seed, effort, got.Bound, again.Bound)
			}
		}
	}
}

func sum(left []int) (n int) {
	for _, v := range left {
		n += v
	}
	return n
}

// services returns a problem with many small services, as is typical of the planner's users.
func services(apps int) *Problem {
	d := rand.New(rand.NewPCG(1, 1))
	p := &Problem{Candidates: machines()}
	for range apps {
		p.Items = append(p.Items, Item{Need: []int64{[]int64{50, 100, 250, 500, 1000}[d.IntN(5)], []int64{128, 256, 512, 1024, 2048}[d.IntN(5)], 1},
			Count: []int{2, 5, 10, 40, 100}[d.IntN(5)], Candidates: every(p.Candidates)})
	}
	return p
}

// large returns a problem with large pieces, where rounding matters.
func large(apps int) *Problem {
	d := rand.New(rand.NewPCG(2, 1))
	p := &Problem{Candidates: machines()}
	for i := range apps {
		p.Items = append(p.Items, Item{Need: []int64{int64(4+d.IntN(28)) * 1000, int64(8+d.IntN(100)) * 1024, 1}, Count: 1 + d.IntN(60), Candidates: every(p.Candidates)})
		if i%3 == 0 {
			p.Rules = append(p.Rules, Rule{Members: []int{i}, Owners: []Owner{{i, 1 + d.IntN(2)}}})
		}
	}
	return p
}

func TestCostOverBound(t *testing.T) {
	for _, tc := range []struct {
		name   string
		p      *Problem
		effort int
		most   float64
	}{
		{"many small services, at once", services(300), 0, 1.02},
		{"many small services, with care", services(300), 50000, 1.006},
		{"large things, at once", large(40), 0, 1.12},
		{"large things, with care", large(40), 200000, 1.05},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bound := Pack(tc.p, 500000).Bound
			r := Pack(tc.p, tc.effort)
			if err := checkResult(tc.p, r); err != nil {
				t.Fatal(err)
			}
			t.Logf("cost %.2f bound %.2f ratio %.4f", r.Cost, bound, r.Cost/bound)
			if r.Cost > tc.most*bound {
				t.Errorf("costs %.4f of the bound, want %.3f at most", r.Cost/bound, tc.most)
			}
		})
	}
}

func BenchmarkPack(b *testing.B) {
	for name, p := range map[string]*Problem{"services": services(300), "large": large(40)} {
		for _, effort := range []int{0, 50000} {
			b.Run(fmt.Sprintf("%s/effort=%d", name, effort), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Pack(p, effort)
				}
			})
		}
	}
}

// Two candidates that can't hold each other's pieces gain nothing from being packed again together.
func TestCandidatesThatAreUndoneBelongTogether(t *testing.T) {
	p := &Problem{}
	for zone := range 2 {
		own := NewBits(2)
		own.Set(zone)
		p.Candidates = append(p.Candidates, Candidate{Room: []int64{4}, Price: 1})
		p.Items = append(p.Items, Item{Need: []int64{3}, Count: 50, Candidates: own})
	}
	k := newKinds(p)
	s, value, chance := k.apart(), []float64{0.75, 0.75}, rand.New(rand.NewPCG(1, 1))
	several, together := 0, 0
	for range 1000 {
		switch out := s.pick(k, value, chance); {
		case out[0]+out[1] < 2:
		case out[0] == 0 || out[1] == 0:
			several, together = several+1, together+1
		default:
			several++
		}
	}
	if several < 800 || together < several*9/10 {
		t.Errorf("of %d choices of several candidates %d are of one zone", several, together)
	}
}
