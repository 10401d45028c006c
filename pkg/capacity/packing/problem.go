package packing

import (
	"encoding/binary"
	"math"
)

// Unlimited is the capacity of a candidate in a dimension that does not matter.
const Unlimited = math.MaxInt64

// Item is a number of identical pieces.
type Item struct {
	// Need is what a piece takes per dimension, never negative.
	Need  []int64
	Count int
	// Candidates are the indexes of the candidates that the item may go into if their capacity suffices.
	Candidates Bits
	// Value is an estimate of what a piece costs in a cheap packing. Floor is its part of a lower bound: no candidate can hold pieces whose floors
	// add up to more than the candidate costs. Values returned both, for a problem with at least these items and candidates. If an item has no
	// Value, Pack computes both for all items.
	Value, Floor float64
}

// Candidate is something to buy.
type Candidate struct {
	// Room is the capacity per dimension; Unlimited where it does not matter.
	Room  []int64
	Price float64
	// Uses are what buying one takes from the budgets.
	Uses []Use
	// Scarce candidates are so few that most pieces can't have one: their price says nothing about what a piece costs.
	Scarce bool
}

// Use is the amount that buying one candidate takes from a budget.
type Use struct {
	Budget int // index in Problem.Budgets
	Amount int64
}

// Rule is a counting rule within one candidate: once a piece of an owner is in it, the candidate may hold at most Limit pieces of the members. An
// item that may be there n times is an owner and the only member; two items that exclude each other are one owner with limit 0 and one
// member.
type Rule struct {
	Members []int // indexes in Problem.Items
	Owners  []Owner
}

// Owner is an item that makes a rule apply to each candidate that holds a piece of it.
type Owner struct {
	Item  int // index in Problem.Items
	Limit int // how many pieces of the rule's members that candidate may hold
}

// Problem is the input of Pack.
type Problem struct {
	Items      []Item
	Candidates []Candidate
	Rules      []Rule
	// Budgets limit what all candidates that are bought use together. Each is an amount that may still be used.
	Budgets []int64
}

// HoldsOne reports whether one of the candidates that an item may go into can hold a piece of it.
func (p *Problem) HoldsOne(item int) bool {
	it := &p.Items[item]
	for b := range p.Candidates {
		if it.Candidates.Has(b) && Fits(p.Candidates[b].Room, it.Need, 1) > 0 {
			return true
		}
	}
	return false
}

// Share is a number of pieces of one item.
type Share struct {
	Item, Count int
}

// Load is the pattern of a candidate, and how many such candidates to buy.
type Load struct {
	Candidate int
	Shares    []Share // sorted by item
	Times     int
}

// Result is what Pack returns.
type Result struct {
	Loads []Load
	// Left is, by item, how many pieces found no place.
	Left []int
	Cost float64
	// Bound is a lower bound for the cost of any packing of the pieces that found a place, budgets aside; 0: unknown.
	Bound float64
	// Values are what a piece of each item pays, in the currency of prices, if pieces can be cut and candidates bought in fractions. No candidate
	// can hold pieces that pay more than it costs. nil: unknown.
	Values []float64
	// Effort is how much work was done, measured as Pack's effort is.
	Effort int
}

// Bits is a set of small numbers.
type Bits []uint64

// NewBits returns an empty set for numbers below n.
func NewBits(n int) Bits { return make(Bits, (n+63)/64) }

// Set adds i.
func (b Bits) Set(i int) { b[i/64] |= 1 << (i % 64) }

// Clear removes i.
func (b Bits) Clear(i int) { b[i/64] &^= 1 << (i % 64) }

// Has reports whether i is in the set.
func (b Bits) Has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// Any reports whether the set is not empty.
func (b Bits) Any() bool {
	for _, w := range b {
		if w != 0 {
			return true
		}
	}
	return false
}

// AppendTo appends the set as bytes, for use as a map's key.
func (b Bits) AppendTo(out []byte) []byte {
	for _, w := range b {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	return out
}

// Clone returns a copy.
func (b Bits) Clone() Bits { return append(Bits(nil), b...) }

// And removes, in place, what is not in o.
func (b Bits) And(o Bits) {
	for i := range b {
		b[i] &= o[i]
	}
}

// AndNot removes, in place, what is in o.
func (b Bits) AndNot(o Bits) {
	for i := range b {
		b[i] &^= o[i]
	}
}

// Or adds, in place, what is in o.
func (b Bits) Or(o Bits) {
	for i := range b {
		b[i] |= o[i]
	}
}

// Fits returns how many pieces with the need the capacity holds, at most limit.
func Fits(room, need []int64, limit int) int {
	for d, n := range need {
		if n <= 0 {
			continue
		}
		if k := room[d] / n; k < int64(limit) {
			if k <= 0 {
				return 0
			}
			limit = int(k)
		}
	}
	return limit
}

// Take subtracts n times the need from the capacity, in place.
func Take(room, need []int64, n int) {
	for d := range need {
		if room[d] != Unlimited {
			room[d] -= need[d] * int64(n)
		}
	}
}
