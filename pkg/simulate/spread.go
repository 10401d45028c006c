package simulate

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
)

// spreadKey is where PodTopologySpread keeps what PreFilter found.
const spreadKey fwk.StateKey = "PreFilter" + podtopologyspread.Name

// spread keeps PodTopologySpread's state exact while pods are added on many nodes.
//
// The plugin's AddPod counts correctly, but tracks the least filled domains in two entries only. That is enough for preemption on one
// node, but wrong here: once the two tracked domains have grown, the plugin's minimum is too high and it accepts too much skew. The
// counts per domain are complete, so we write the true minimum after each AddPod. A second difference: a constraint with an empty
// selector counts no pods in PreFilter, but every pod in AddPod.
//
// The counts and the minimum are exported fields of an unexported type, which are accessed by reflection. If an upgrade changes them,
// TestSpreadState and the property test fail, and Verify returns an error.
type spread struct{ constraints []spreadConstraint }

type spreadConstraint struct {
	key    string
	counts map[string]int // matching pods by domain; the plugin's own map
	least  *int           // the plugin's minimum
	empty  bool           // the selector is empty
	// low is the true minimum of counts and atLow the number of domains that have it.
	low, atLow int
	// assumedEmpty: a domain that counts doesn't have is taken for empty, so that the minimum is 0 whatever is in counts.
	assumedEmpty bool
	// before is, while a pod is added, the number of matching pods in its node's domain before AddPod; known: counts had that domain.
	before int
	known  bool
}

var errSpreadState = errors.New("the data of the plugin PodTopologySpread can't be read: this binary was built with other Kubernetes libraries than Dovetail was written for")

// spreadOf reads the class's spread state; nil without an error means that the pod has no hard constraints.
func spreadOf(state fwk.CycleState) (*spread, error) {
	data, err := state.Read(spreadKey)
	if errors.Is(err, fwk.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading %q: %w", spreadKey, err)
	}
	v := reflect.ValueOf(data)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, errSpreadState
	}
	constraints, paths := v.Elem().FieldByName("Constraints"), v.Elem().FieldByName("CriticalPaths")
	counts, ok := exported[[]map[string]int](v.Elem().FieldByName("TpValueToMatchNum"))
	if !ok || constraints.Kind() != reflect.Slice || paths.Kind() != reflect.Slice ||
		constraints.Len() != len(counts) || paths.Len() != len(counts) {
		return nil, errSpreadState
	}
	s := &spread{constraints: make([]spreadConstraint, len(counts))}
	for i := range s.constraints {
		path := paths.Index(i) // *[2]struct{ TopologyValue string; MatchNum int }
		if path.Kind() != reflect.Pointer || path.Elem().Kind() != reflect.Array || constraints.Index(i).Kind() != reflect.Struct {
			return nil, errSpreadState
		}
		first := path.Elem().Index(0)
		if first.Kind() != reflect.Struct || !first.FieldByName("MatchNum").CanAddr() {
			return nil, errSpreadState
		}
		least, okLeast := exported[*int](first.FieldByName("MatchNum").Addr())
		key, okKey := exported[string](constraints.Index(i).FieldByName("TopologyKey"))
		selector, okSelector := exported[labels.Selector](constraints.Index(i).FieldByName("Selector"))
		if !okLeast || !okKey || !okSelector {
			return nil, errSpreadState
		}
		c := spreadConstraint{key: key, counts: counts[i], least: least, empty: selector.Empty()}
		c.scan()
		s.constraints[i] = c
	}
	return s, nil
}

func exported[T any](v reflect.Value) (T, bool) {
	var zero T
	if !v.IsValid() || !v.CanInterface() {
		return zero, false
	}
	t, ok := v.Interface().(T)
	return t, ok
}

// beforeAdd must be called before a pod is added on a node with these labels, afterAdd after.
func (s *spread) beforeAdd(nodeLabels map[string]string) {
	for i := range s.constraints {
		c := &s.constraints[i]
		c.before, c.known = c.counts[nodeLabels[c.key]]
	}
}

func (s *spread) afterAdd(nodeLabels map[string]string) {
	for i := range s.constraints {
		c := &s.constraints[i]
		domain := nodeLabels[c.key]
		now, there := c.counts[domain]
		switch {
		case c.empty && c.known:
			c.counts[domain] = c.before
		case c.empty:
			delete(c.counts, domain)
		case there != c.known:
			c.scan()
		case now != c.before && c.before == c.low:
			if c.atLow--; c.atLow == 0 {
				c.scan()
			}
		}
		*c.least = c.low
	}
}

// assumeEmpty makes 0 the minimum of all constraints for good.
func (s *spread) assumeEmpty() {
	for i := range s.constraints {
		c := &s.constraints[i]
		c.assumedEmpty = true
		c.scan()
		*c.least = c.low
	}
}

// scan computes the minimum from scratch. This is rarely needed: when the last of the least filled domains has grown, or a domain is new.
func (c *spreadConstraint) scan() {
	if c.assumedEmpty {
		c.low, c.atLow = 0, 1
		return
	}
	c.low, c.atLow = math.MaxInt32, 0
	for _, n := range c.counts {
		switch {
		case n < c.low:
			c.low, c.atLow = n, 1
		case n == c.low:
			c.atLow++
		}
	}
}
