package packing

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The result of the bounded program is compared with the best of a grid of points, which the optimum can't be below, and with its own
// Lagrangian value, which no feasible point may exceed.
func TestBoundedProgram(t *testing.T) {
	for seed := range uint64(300) {
		d := rand.New(rand.NewPCG(seed, 1))
		n, m := 1+d.IntN(4), 1+d.IntN(3)
		a := make([][]float64, m)
		b := make([]float64, m)
		for r := range a {
			for range n {
				a[r] = append(a[r], float64(d.IntN(5)))
			}
			b[r] = float64(1 + d.IntN(12))
		}
		hi, c := make([]float64, n), make([]float64, n)
		for j := range hi {
			hi[j], c[j] = float64(1+d.IntN(4)), float64(d.IntN(9))
		}
		var l bounded
		var x []float64
		bound := l.solve(a, b, hi, c, &x)
		value := 0.0
		for j := range x {
			value += c[j] * x[j]
			if x[j] < -1e-9 || x[j] > hi[j]+1e-9 {
				t.Fatalf("program %d: x %v passes its bounds %v", seed, x, hi)
			}
		}
		for r := range a {
			use := 0.0
			for j := range x {
				use += a[r][j] * x[j]
			}
			if use > b[r]+1e-6 {
				t.Fatalf("program %d: row %d takes %v of %v", seed, r, use, b[r])
			}
		}
		if math.Abs(bound-value) > 1e-6*(1+value) {
			t.Fatalf("program %d: value %v, bound %v", seed, value, bound)
		}
		if grid := bestPoint(a, b, hi, c, make([]float64, n), 0); grid > value+1e-6 {
			t.Fatalf("program %d: value %v, a point of the grid has %v", seed, value, grid)
		}
	}
}

func bestPoint(a [][]float64, b, hi, c, x []float64, at int) float64 {
	if at == len(x) {
		v := 0.0
		for r := range a {
			use := 0.0
			for j := range x {
				use += a[r][j] * x[j]
			}
			if use > b[r]+1e-9 {
				return math.Inf(-1)
			}
		}
		for j := range x {
			v += c[j] * x[j]
		}
		return v
	}
	best := math.Inf(-1)
	for v := 0.0; v <= hi[at]; v += 0.5 {
		x[at] = v
		best = math.Max(best, bestPoint(a, b, hi, c, x, at+1))
	}
	return best
}

// randomProgram returns a covering program of m rows with its start columns only, and what its rows need.
func randomProgram(d *rand.Rand, m int) (*coveringLP, []float64) {
	need := make([]float64, m)
	var start []column
	for r := range need {
		need[r] = float64(1 + d.IntN(50))
		start = append(start, column{rows: []int32{int32(r)}, vals: []float64{1 + float64(d.IntN(4))}, price: 5 + float64(d.IntN(20))})
	}
	return newCoveringLP(need, start), need
}

// The covering program's multipliers must price every column at no more than its cost, and the need at the cost of the optimum: then it
// is the optimum.
func TestCoveringProgram(t *testing.T) {
	for seed := range uint64(200) {
		d := rand.New(rand.NewPCG(seed, 2))
		m := 1 + d.IntN(8)
		lp, need := randomProgram(d, m)
		for range d.IntN(60) {
			col := column{price: 1 + 20*d.Float64()}
			for r := range need {
				if d.IntN(2) == 0 {
					col.rows, col.vals = append(col.rows, int32(r)), append(col.vals, float64(1+d.IntN(6)))
				}
			}
			lp.add(col)
		}
		if !lp.solve(1e9) {
			t.Fatalf("program %d: no optimum reached", seed)
		}
		value := 0.0
		for r, v := range lp.duals {
			if v < -1e-6 {
				t.Fatalf("program %d: multiplier %d is %v", seed, r, v)
			}
			value += v * need[r]
		}
		for j, col := range lp.cols {
			worth := 0.0
			for k, r := range col.rows {
				worth += lp.duals[r] * col.vals[k]
			}
			if worth > col.price+1e-6 {
				t.Fatalf("program %d: column %d is worth %v and costs %v", seed, j, worth, col.price)
			}
		}
		if math.Abs(value-lp.value()) > 1e-4*(1+value) {
			t.Fatalf("program %d: costs %v, multipliers say %v", seed, lp.value(), value)
		}
	}
}

// The multipliers are changed with each pivot, and the inverse is computed anew now and then. Both must be what they are by definition, or plans
// would get dearer without anybody noticing.
func TestCoveringProgramIsExact(t *testing.T) {
	for seed := range uint64(20) {
		d := rand.New(rand.NewPCG(seed, 3))
		m := 40 + d.IntN(60)
		lp, _ := randomProgram(d, m)
		pivots := 0
		for range 6 {
			for range 60 {
				col := column{price: 1 + 20*d.Float64()}
				for _, r := range d.Perm(m)[:2+d.IntN(5)] {
					col.rows, col.vals = append(col.rows, int32(r)), append(col.vals, float64(1+d.IntN(6)))
				}
				lp.add(col)
			}
			lp.multipliers()
			for id, ok := lp.entering(); ok && lp.pivot(id); id, ok = lp.entering() {
				pivots++
			}
			changed := slices.Clone(lp.duals)
			if lp.multipliers(); !sameNumbers(changed, lp.duals) {
				t.Fatalf("program %d: the multipliers are %v after %d pivots, and should be %v", seed, changed, pivots, lp.duals)
			}
			for r := range m {
				row := make([]float64, m) // row r of the inverse times the basis
				for j, id := range lp.basis {
					if id < 0 {
						row[j] = -lp.inv[r*m-1-id]
						continue
					}
					for k, i := range lp.cols[id].rows {
						row[j] += lp.inv[r*m+int(i)] * lp.cols[id].vals[k]
					}
				}
				want := make([]float64, m)
				want[r] = 1
				if !sameNumbers(row, want) {
					t.Fatalf("program %d: row %d of the inverse is wrong after %d pivots: times the basis it is %v", seed, r, pivots, row)
				}
			}
		}
		if pivots < 100 {
			t.Fatalf("program %d took %d pivots only: the inverse was never computed anew", seed, pivots)
		}
	}
}

func sameNumbers(a, b []float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-6*(1+math.Abs(b[i])) {
			return false
		}
	}
	return true
}
