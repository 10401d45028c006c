package packing

import (
	"math"
)

// bounded is a small linear program: maximize c.x with a.x <= b and 0 <= x <= hi, by the simplex method on a tableau with implicit
// bounds. It reuses its memory.
type bounded struct {
	c     []float64 // what a unit of each variable is worth; the caller's slice
	t     []float64 // the tableau, row by row; its columns are the variables, then the slack variable of each row
	z     []float64 // by column: what a unit more of it adds to the value of the solution
	ub    []float64 // by column: the most that it may be
	basis []int     // by row: the column whose value the row determines
	xb    []float64 // by row: the value of that column
	in    []bool    // by column: it is in basis
	upper []bool    // by column: it is at its upper bound; a column that isn't in basis is there or at 0
	// sign, by column, is 1 if its value can rise from 0, -1 if it can fall from its upper bound, 0 if it is in basis or can't change.
	sign []float64
	// mu are the rows' multipliers (dual prices) after the last solve: by row, what a unit more of b would add to the value.
	mu   []float64
	work int
}

// solve fills x and returns an upper bound for the value of any solution: b at the prices mu, plus what each variable, at hi, is worth beyond
// these prices (the Lagrangian). The bound holds whatever mu is, so also if solve stops before the optimum.
func (l *bounded) solve(a [][]float64, b, hi, c []float64, x *[]float64) float64 {
	n, m := len(c), len(b)
	w := n + m
	l.reset(a, b, hi, c, n, m)
	l.work = m * w
	for range 20 * (m + 4) * 4 {
		e, best := -1, 1e-11
		sign := l.sign[:len(l.z)]
		for j, v := range l.z {
			if v *= sign[j]; v > best {
				e, best = j, v
			}
		}
		l.work += w
		if e < 0 {
			break
		}
		l.step(e, m, w)
	}
	return l.read(a, b, hi, c, n, m, x)
}

func (l *bounded) reset(a [][]float64, b, hi, c []float64, n, m int) {
	w := n + m
	l.t, l.z, l.ub = resize(l.t, m*w), resize(l.z, w), resize(l.ub, w)
	l.xb, l.mu = resize(l.xb, m), resize(l.mu, m)
	if cap(l.in) < w {
		l.in, l.upper, l.basis, l.sign = make([]bool, w), make([]bool, w), make([]int, w), make([]float64, w)
	}
	l.sign = l.sign[:w]
	l.in, l.upper, l.basis = l.in[:w], l.upper[:w], l.basis[:m]
	for r := range m {
		row := l.t[r*w : r*w+w]
		copy(row, a[r])
		clear(row[n:])
		row[n+r] = 1
		l.xb[r], l.basis[r] = b[r], n+r
	}
	for j := range w {
		l.in[j], l.upper[j] = j >= n, false
		if j < n {
			l.z[j], l.ub[j] = c[j], hi[j]
		} else {
			l.z[j], l.ub[j] = 0, math.Inf(1)
		}
		if l.sign[j] = 1; j >= n || l.ub[j] <= 0 {
			l.sign[j] = 0
		}
	}
}

func resize(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}

// step brings column e into the basis, or moves it to its other bound.
func (l *bounded) step(e, m, w int) {
	dir := 1.0
	if l.upper[e] {
		dir = -1
	}
	theta, out, outUpper := l.ub[e], -1, false
	for r := range m {
		g := l.t[r*w+e] * dir
		if g > 1e-12 {
			if q := l.xb[r] / g; q < theta {
				theta, out, outUpper = q, r, false
			}
		} else if u := l.ub[l.basis[r]]; g < -1e-12 && !math.IsInf(u, 1) {
			if q := (u - l.xb[r]) / -g; q < theta {
				theta, out, outUpper = q, r, true
			}
		}
	}
	theta = math.Max(0, theta)
	for r := range m {
		l.xb[r] -= theta * l.t[r*w+e] * dir
	}
	if out < 0 {
		l.upper[e] = !l.upper[e]
		l.sign[e] = -l.sign[e]
		return
	}
	old := l.basis[out]
	l.in[old], l.upper[old] = false, outUpper
	switch {
	case l.ub[old] <= 0:
	case outUpper:
		l.sign[old] = -1
	default:
		l.sign[old] = 1
	}
	l.sign[e] = 0
	v := theta
	if l.upper[e] {
		v = l.ub[e] - theta
	}
	l.upper[e], l.in[e], l.basis[out], l.xb[out] = false, true, e, v
	pr := l.t[out*w : out*w+w]
	f := 1 / pr[e]
	for j := range pr {
		pr[j] *= f
	}
	for r := range m {
		if r == out {
			continue
		}
		row := l.t[r*w : r*w+w]
		if g := row[e]; g != 0 {
			for j, v := range pr {
				row[j] -= g * v
			}
		}
	}
	if g := l.z[e]; g != 0 {
		for j, v := range pr {
			l.z[j] -= g * v
		}
	}
	l.work += (m + 1) * w
}

func (l *bounded) read(a [][]float64, b, hi, c []float64, n, m int, x *[]float64) float64 {
	bound := 0.0
	for r := range m {
		l.mu[r] = math.Max(0, -l.z[n+r])
		bound += l.mu[r] * b[r]
	}
	*x = resize(*x, n)
	for j := range n {
		(*x)[j] = 0
		if l.upper[j] && !l.in[j] {
			(*x)[j] = hi[j]
		}
		over := c[j]
		for r := range m {
			over -= l.mu[r] * a[r][j]
		}
		if over > 0 {
			bound += over * hi[j]
		}
	}
	for r, j := range l.basis {
		if j < n {
			(*x)[j] = l.xb[r]
		}
	}
	return bound
}
