package buffers

import (
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// restFor is how long a node has to have had chunks before they are moved away so that it can end. When a short job takes a buffer's capacity, a
// node is bought for its chunks. Without restFor that node would end with the job, since the chunks fit in the job's place again, and the next
// job would need another node.
const restFor = 10 * time.Minute

// Spans remember since when nodes have chunks, and when they last had some.
type Spans struct{ byNode map[string]span }

// span is when a node got its chunks (zero: it has none now) and when it last had some.
type span struct{ first, last time.Time }

// Observe notes which of the nodes have chunks now, and forgets nodes that are gone.
func (s *Spans) Observe(chunks Chunks, nodes []*capacity.Node, now time.Time) {
	next := map[string]span{}
	for _, n := range nodes {
		had, known := s.byNode[n.Name]
		switch on := len(chunks[n.Name]) > 0; {
		case on && (!known || had.first.IsZero()):
			next[n.Name] = span{now, now}
		case on:
			next[n.Name] = span{had.first, now}
		case known:
			next[n.Name] = span{last: had.last}
		}
	}
	s.byNode = next
}

// Last returns when the node last had chunks; zero: it had none.
func (s *Spans) Last(node string) time.Time { return s.byNode[node].last }

// Free returns those of the nodes that have had chunks for restFor, so that these may be moved away now. It reuses the slice nodes.
func (s *Spans) Free(nodes []string, now time.Time) []string {
	return slices.DeleteFunc(nodes, func(n string) bool { return now.Sub(s.byNode[n].first) < restFor })
}
