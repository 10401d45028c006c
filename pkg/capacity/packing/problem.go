package packing

import (
	"encoding/binary"
	"math"
)

// Unlimited room of a bin in a dimension.
const Unlimited = math.MaxInt64

// Item is a number of equal things.
type Item struct {
	// Need per dimension, never negative.
	Need  []int64
	Count int
	// Bins the item may go into as far as anything but room is concerned.
	Bins Bits
}

// Bin is a thing to buy.
type Bin struct {
	// Room per dimension; Unlimited where it does not matter.
	Room  []int64
	Price float64
	// Uses are what buying one takes from budgets.
	Uses []Use
	// Scarce bins are few, so that their price says nothing about what things cost.
	Scarce bool
}

// Use is an amount taken from a budget.
type Use struct {
	Budget int
	Amount int64
}

// Rule is a counting rule within one bin: as soon as a thing of an owner is in it, it may hold Limit of the members at
// most. An item that may be there n times is an owner and the only member; two items that exclude each other are one
// owner with limit 0 and one member.
type Rule struct {
	Members []int
	Owners  []Owner
}

// Owner is an item that insists on a rule.
type Owner struct {
	Item  int
	Limit int
}

// Problem is what Pack is asked.
type Problem struct {
	Items []Item
	Bins  []Bin
	Rules []Rule
	// Budgets are what is left of amounts that bins take from.
	Budgets []int64
}

// HoldsOne says whether one of the bins that an item may go into has room for a thing of it.
func (p *Problem) HoldsOne(item int) bool {
	it := &p.Items[item]
	for b := range p.Bins {
		if it.Bins.Has(b) && Fits(p.Bins[b].Room, it.Need, 1) > 0 {
			return true
		}
	}
	return false
}

// Share is a number of things of one item.
type Share struct {
	Item, Count int
}

// Load is a content of a bin, and how many bins of it to buy.
type Load struct {
	Bin    int
	Shares []Share // by item
	Times  int
}

// Result is what Pack answers.
type Result struct {
	Loads []Load
	// Left is, by item, how many found no place.
	Left []int
	Cost float64
	// Bound is a value that no packing of the things that found a place costs less than, budgets aside; 0: unknown.
	Bound float64
	// Effort that was spent.
	Effort int
}

// Bits is a set of small numbers.
type Bits []uint64

// NewBits makes an empty set for numbers below n.
func NewBits(n int) Bits { return make(Bits, (n+63)/64) }

// Set adds i.
func (b Bits) Set(i int) { b[i/64] |= 1 << (i % 64) }

// Clear takes i out.
func (b Bits) Clear(i int) { b[i/64] &^= 1 << (i % 64) }

// Has says whether i is in the set.
func (b Bits) Has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// Any says whether the set is not empty.
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

// Clone is a copy.
func (b Bits) Clone() Bits { return append(Bits(nil), b...) }

// And takes out in place what is not in o.
func (b Bits) And(o Bits) {
	for i := range b {
		b[i] &= o[i]
	}
}

// AndNot takes out in place what is in o.
func (b Bits) AndNot(o Bits) {
	for i := range b {
		b[i] &^= o[i]
	}
}

// Or adds in place what is in o.
func (b Bits) Or(o Bits) {
	for i := range b {
		b[i] |= o[i]
	}
}

// Fits is how many things of a need the room holds, at most limit.
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

// Take takes n times the need from the room in place.
func Take(room, need []int64, n int) {
	for d := range need {
		if room[d] != Unlimited {
			room[d] -= need[d] * int64(n)
		}
	}
}
