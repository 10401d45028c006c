package packing

import (
	"math"
	"slices"
)

// column is a column of a coveringLP: something to buy at a price.
type column struct {
	rows  []int32   // the rows in which it isn't zero
	vals  []float64 // its numbers in these rows
	price float64
}

// coveringLP is the linear program: minimize price.x with A.x >= need, x >= 0. It is solved by the revised simplex method with a dense inverse
// of the basis, from a basis that the caller gives; columns may be added between calls of solve. The solution is used as advice and,
// through its multipliers, for bounds that hold whatever the multipliers are: a loss of precision can make a plan dearer, never wrong.
type coveringLP struct {
	m    int // number of rows
	cols []column
	need []float64 // by row
	// basis are the columns that the solution may use, one for each row. The surplus column of row r, with -1 in that row, has the number -1-r.
	basis   []int
	inBasis []bool    // by column
	surplus []bool    // by row: its surplus column is in the basis
	inv     []float64 // inverse of the basis, row by row
	x       []float64 // how much the solution takes of each column of the basis
	duals   []float64 // by row: its multiplier, what a unit more of its need would add to the cost
	enter   []float64 // scratch memory of pivot: the column that enters, multiplied by inv
	some    []int     // positions of the numbers in the pivot row that aren't zero
	work    int       // all work done by this program (workBudget)
	since   int       // pivots since the inverse was last computed from scratch
	at      int       // index of the column that entering looks at next
}

// newCoveringLP starts from the first len(need) columns. The r-th of them must be positive in row r and have no other rows.
func newCoveringLP(need []float64, start []column) *coveringLP {
	m := len(need)
	c := &coveringLP{m: m, cols: start, need: make([]float64, m), basis: make([]int, m), surplus: make([]bool, m),
		inv: make([]float64, m*m), x: make([]float64, m), duals: make([]float64, m), enter: make([]float64, m)}
	c.inBasis = make([]bool, len(start))
	for r := range need {
		// A little more need than given, different in each row, keeps pivots from being degenerate.
		c.need[r] = need[r]*(1+1e-8*float64(1+r*7919%997)/997) + 1e-9*float64(1+r%13)
		c.basis[r], c.inBasis[r] = r, true
		c.inv[r*m+r] = 1 / start[r].vals[0]
		c.x[r] = c.need[r] / start[r].vals[0]
	}
	return c
}

func (c *coveringLP) add(col column) {
	c.cols = append(c.cols, col)
	c.inBasis = append(c.inBasis, false)
}

func (c *coveringLP) price(id int) float64 {
	if id < 0 {
		return 0
	}
	return c.cols[id].price
}

// value returns the cost of the current solution.
func (c *coveringLP) value() float64 {
	v := 0.0
	for r, id := range c.basis {
		v += c.price(id) * c.x[r]
	}
	return v
}

func (c *coveringLP) multipliers() {
	clear(c.duals)
	for r, id := range c.basis {
		p := c.price(id)
		if p == 0 {
			continue
		}
		row := c.inv[r*c.m : r*c.m+c.m]
		for k, v := range row {
			c.duals[k] += p * v
		}
	}
	c.work += c.m * c.m / 4
}

// solve pivots until nothing improves or the work done passes most; it reports whether the optimum was reached.
func (c *coveringLP) solve(most int) bool {
	c.multipliers()
	for most += c.work; c.work < most; {
		id, ok := c.entering()
		if !ok {
			return true
		}
		if !c.pivot(id) {
			return false
		}
	}
	return false
}

// entering finds a column that is worth more than it costs: the best one of a stretch of columns. The next call continues after that
// stretch.
func (c *coveringLP) entering() (id int, ok bool) {
	best := -1e-9
	n := len(c.cols)
	stretch := max(200, n/8)
	for seen := 0; seen < n; {
		for end := min(seen+stretch, n); seen < end; seen++ {
			j := c.at
			if c.at++; c.at >= n {
				c.at = 0
			}
			if c.inBasis[j] {
				continue
			}
			col := &c.cols[j]
			r := c.reducedCost(col)
			if scale := math.Max(1e-9, col.price); r < best*scale {
				best, id, ok = r/scale, j, true
			}
		}
		c.work += 3 * stretch
		if ok {
			return id, true
		}
	}
	for r, d := range c.duals {
		if d < best && !c.surplus[r] {
			best, id, ok = d, -1-r, true
		}
	}
	return id, ok
}

// reducedCost returns what a column costs more than it is worth under the multipliers.
func (c *coveringLP) reducedCost(col *column) float64 {
	r := col.price
	for k, row := range col.rows {
		r -= c.duals[row] * col.vals[k]
	}
	return r
}

// pivot brings a column into the basis. It returns false if the numbers don't allow it.
func (c *coveringLP) pivot(id int) bool {
	m, w := c.m, c.enter
	clear(w)
	over := 0.0 // what the column costs more than it is worth
	if id < 0 {
		k := -1 - id
		over = c.duals[k]
		for r := range w {
			w[r] = -c.inv[r*m+k]
		}
	} else {
		col := &c.cols[id]
		over = c.reducedCost(col)
		for r := range w {
			row := c.inv[r*m : r*m+m]
			v := 0.0
			for k, i := range col.rows {
				v += row[i] * col.vals[k]
			}
			w[r] = v
		}
		c.work += m * len(col.rows) / 2
	}
	out, theta := -1, math.Inf(1)
	for r, v := range w {
		if v <= 1e-9 {
			continue
		}
		t := math.Max(0, c.x[r]/v)
		if t < theta-1e-12 || t < theta+1e-12 && v > w[out] {
			out, theta = r, t
		}
	}
	if out < 0 {
		return false
	}
	for r, v := range w {
		c.x[r] -= theta * v
	}
	c.x[out] = theta
	if old := c.basis[out]; old < 0 {
		c.surplus[-1-old] = false
	} else {
		c.inBasis[old] = false
	}
	if id < 0 {
		c.surplus[-1-id] = true
	} else {
		c.inBasis[id] = true
	}
	c.basis[out] = id
	pr := c.inv[out*m : out*m+m]
	f := 1 / w[out]
	for k := range pr {
		pr[k] *= f
	}
	c.eliminate(c.inv, pr, w, out)
	if c.since++; c.since >= 100 {
		c.refresh()
		c.multipliers()
		return true
	}
	for k, v := range pr {
		c.duals[k] += over * v
	}
	return true
}

// eliminate subtracts the pivot row from each row of a matrix but one, as often as the row's factor says. As long as few columns have been in
// the basis, most numbers of the pivot row are zero.
func (c *coveringLP) eliminate(matrix, pivot, factors []float64, except int) {
	m := c.m
	c.some = c.some[:0]
	for k, v := range pivot {
		if v != 0 {
			c.some = append(c.some, k)
		}
	}
	few, rows := len(c.some) < m/2, 0
	for r, g := range factors {
		if r == except || g == 0 {
			continue
		}
		rows++
		row := matrix[r*m : r*m+m]
		if few {
			for _, k := range c.some {
				row[k] -= g * pivot[k]
			}
			continue
		}
		for k, v := range pivot {
			row[k] -= g * v
		}
	}
	if few {
		c.work += rows*len(c.some) + 2*m
	} else {
		c.work += rows*m/2 + 2*m
	}
}

// refresh computes the inverse of the basis from scratch, because errors of rounding add up with each pivot: by Gauss-Jordan elimination with
// partial pivoting, columns with the fewest numbers first.
func (c *coveringLP) refresh() {
	c.since = 0
	m := c.m
	a := make([]float64, m*m)
	order, numbers := make([]int, m), make([]int, m)
	for j, id := range c.basis {
		order[j], numbers[j] = j, 1
		if id < 0 {
			a[(-1-id)*m+j] = -1
			continue
		}
		numbers[j] = len(c.cols[id].rows)
		for k, r := range c.cols[id].rows {
			a[int(r)*m+j] = c.cols[id].vals[k]
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return numbers[i] - numbers[j] })
	inv := make([]float64, m*m)
	for r := range m {
		inv[r*m+r] = 1
	}
	rowOf, taken, factors := make([]int, m), make([]bool, m), make([]float64, m)
	for _, j := range order {
		p := -1
		for r := range m {
			factors[r] = a[r*m+j]
			if !taken[r] && (p < 0 || math.Abs(factors[r]) > math.Abs(factors[p])) {
				p = r
			}
		}
		f := factors[p]
		if math.Abs(f) < 1e-13 {
			return // keep the old one
		}
		rowOf[j], taken[p] = p, true
		ap, ip := a[p*m:p*m+m], inv[p*m:p*m+m]
		for k := range m {
			ap[k] /= f
			ip[k] /= f
		}
		c.work += 2 * m
		c.eliminate(a, ap, factors, p)
		c.eliminate(inv, ip, factors, p)
	}
	for j, p := range rowOf {
		row := c.inv[j*m : j*m+m]
		copy(row, inv[p*m:p*m+m])
		v := 0.0
		for k, w := range row {
			v += w * c.need[k]
		}
		c.x[j] = math.Max(0, v)
	}
	c.work += m * m
}
