package ledger

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
)

// Buffer is a CapacityBuffer: capacity is to be kept for a number of chunks, each as large as a pod of the class.
type Buffer struct {
	UID    types.UID
	Class  *capacity.Class
	Chunks int
}

// buffer is a Buffer with its chunks.
type buffer struct {
	Buffer
	chunks []*chunk // in the order in which they were placed
	// failed is how many launches in a row have failed for the buffer, misfits how many nodes in a row turned out too small for the chunks that
	// they were launched for. Nothing is launched for the buffer before next.
	failed, misfits int
	next            time.Time
}

// chunk is a reservation without a pod. It yields to any pod: no query of a pod (Object, Apart, Gate, Pin) sees it, and neither do plans for
// pods. When pods may have taken its capacity, Effects.Buffers asks to look (see SiftChunks).
type chunk struct {
	buffer *buffer
	node   *node
	// bought: the node was launched for it.
	bought bool
}

// Chunk is a chunk on a node, as input for plans.
type Chunk struct {
	Buffer types.UID
	Class  *capacity.Class
	Bought bool // the node was launched for it
}

// BufferState is a Buffer and what has become of it.
type BufferState struct {
	Buffer
	// Ready is the number of chunks on initialized nodes, Launching that of chunks on nodes that aren't yet. The rest has no capacity.
	Ready, Launching int
	// Next is the time before which nothing is launched for the buffer. Misfits is how many nodes in a row turned out too small for its chunks,
	// with less capacity than planned.
	Next    time.Time
	Misfits int
}

// Missing is the number of chunks without capacity.
func (b *BufferState) Missing() int { return b.Chunks - b.Ready - b.Launching }

// firstMisfit is how long nothing is bought for a buffer after a node has turned out too small for its chunks; it doubles each time.
const (
	firstMisfit = 5 * time.Minute
	maxMisfit   = 6 * time.Hour
)

// Want sets all buffers. Chunks that are no longer wanted are dropped, those on claims that aren't launched first, then the newest; if a
// buffer's class has changed, all of its chunks are. What is missing has to be planned for.
func (l *Ledger) Want(all []Buffer) {
	wanted := map[types.UID]bool{}
	for _, one := range all {
		wanted[one.UID] = true
		b := l.buffers[one.UID]
		if b == nil {
			b = &buffer{}
			l.buffers[one.UID] = b
		} else if b.Class.Key != one.Class.Key {
			l.dropChunks(b, 0)
			b.failed, b.misfits, b.next = 0, 0, time.Time{}
		}
		b.Buffer = one
		l.dropChunks(b, one.Chunks)
		l.out.Buffers = l.out.Buffers || len(b.chunks) < one.Chunks
	}
	for uid, b := range l.buffers {
		if !wanted[uid] {
			l.dropChunks(b, 0)
			delete(l.buffers, uid)
		}
	}
}

// dropChunks drops chunks of a buffer until at most n are left, first those on claims that aren't launched, then the newest.
func (l *Ledger) dropChunks(b *buffer, n int) {
	if len(b.chunks) <= n {
		return
	}
	for _, unlaunched := range []bool{true, false} {
		for _, c := range slices.Backward(slices.Clone(b.chunks)) {
			if len(b.chunks) > n && (!unlaunched || c.node.claim != "" && !c.node.launched) {
				l.dropChunk(c)
			}
		}
	}
}

// dropChunk removes a chunk, and its node if nothing else depends on that.
func (l *Ledger) dropChunk(c *chunk) {
	same := func(o *chunk) bool { return o == c }
	c.buffer.chunks = slices.DeleteFunc(c.buffer.chunks, same)
	c.node.chunks = slices.DeleteFunc(c.node.chunks, same)
	l.out.Buffers = true
	l.tidy(c.node)
}

// PlaceChunks turns placements of chunks into reservations; the Owner of each is its buffer. It skips what is no longer wanted, and nodes
// that are fenced or gone: those chunks stay missing.
func (l *Ledger) PlaceChunks(placements []capacity.Placement) {
	for _, pl := range placements {
		b, n := l.buffers[pl.Owner], l.find(pl.Node)
		if n == nil || n.fenced || b == nil || b.Class.Key != pl.Class.Key || len(b.chunks) >= b.Chunks {
			continue
		}
		c := &chunk{buffer: b, node: n, bought: n.claim != "" && !n.launched && !n.cached}
		b.chunks, n.chunks = append(b.chunks, c), append(n.chunks, c)
		n.intend(b.Class)
	}
	l.tidyAll(placements)
	l.cancelUnneeded()
}

// MoveChunks is PlaceChunks for all chunks of a node, which has none afterwards. It does nothing if there isn't exactly one placement for
// each of these chunks, or if one of the placements would be skipped.
func (l *Ledger) MoveChunks(from string, placements []capacity.Placement) {
	count := map[types.UID]int{}
	if n := l.find(from); n != nil {
		for _, c := range n.chunks {
			count[c.buffer.UID]++
		}
	}
	for _, pl := range placements {
		b, n := l.buffers[pl.Owner], l.find(pl.Node)
		if n == nil || n.fenced || b == nil || b.Class.Key != pl.Class.Key {
			l.tidyAll(placements)
			return
		}
		count[pl.Owner]--
	}
	for _, left := range count {
		if left != 0 {
			l.tidyAll(placements)
			return
		}
	}
	before := l.out.Buffers
	l.GiveUpChunks(from)
	l.out.Buffers = before
	l.PlaceChunks(placements)
}

// GiveUpChunks drops the chunks of a node that has to end.
func (l *Ledger) GiveUpChunks(name string) {
	if n := l.find(name); n != nil {
		l.loseChunks(n)
	}
}

func (l *Ledger) loseChunks(n *node) {
	for _, c := range slices.Clone(n.chunks) {
		l.dropChunk(c)
	}
}

// LostChunks are chunks of a buffer that don't fit on their node any more.
type LostChunks struct {
	Node   string
	Buffer types.UID
	N      int
	// Misfit: no pod has taken their place, so the node has less capacity than was planned.
	Misfit bool
}

// SiftChunks drops chunks that have lost their capacity. fit lists buffers with chunks that do fit on an initialized node which was launched for
// them: such a buffer's failures and misfits are counted from 0 again.
func (l *Ledger) SiftChunks(lost []LostChunks, fit []types.UID, now time.Time) {
	for _, uid := range fit {
		if b := l.buffers[uid]; b != nil {
			b.failed, b.misfits = 0, 0
		}
	}
	for _, o := range lost {
		b, n := l.buffers[o.Buffer], l.find(o.Node)
		if b == nil || n == nil {
			continue
		}
		left := o.N
		for _, c := range slices.Backward(slices.Clone(n.chunks)) {
			if left > 0 && c.buffer == b {
				left--
				l.dropChunk(c)
			}
		}
		if o.Misfit && !now.Before(b.next) {
			b.next = now.Add(min(firstMisfit<<min(b.misfits, 10), maxMisfit))
			b.misfits++
		}
	}
}

// failChunks counts a failed launch for each buffer with chunks on the node. Launches that fail at about the same time count once.
func (n *node) failChunks(now time.Time) {
	if n.status.Initialized {
		return
	}
	for _, c := range n.chunks {
		if b := c.buffer; !now.Before(b.next) {
			b.failed++
			b.next = now.Add(backoff.AtLeast(b.failed))
		}
	}
}

// HoldsChunks reports whether the node has chunks, so that it is needed without pods.
func (l *Ledger) HoldsChunks(name string) bool {
	n := l.find(name)
	return n != nil && len(n.chunks) > 0
}

// Buffers returns all buffers, by UID.
func (l *Ledger) Buffers() []BufferState {
	out := make([]BufferState, 0, len(l.buffers))
	for _, b := range l.buffers {
		s := BufferState{Buffer: b.Buffer, Next: b.next, Misfits: b.misfits}
		for _, c := range b.chunks {
			if c.node.up() {
				s.Ready++
			} else {
				s.Launching++
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b BufferState) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// chunkList returns the node's chunks as input for plans.
func (n *node) chunkList() (out []Chunk) {
	for _, c := range n.chunks {
		out = append(out, Chunk{Buffer: c.buffer.UID, Class: c.buffer.Class, Bought: c.bought})
	}
	return out
}

// idle reports whether nothing is reserved on the node.
func (n *node) idle() bool { return len(n.slots) == 0 && len(n.chunks) == 0 }
