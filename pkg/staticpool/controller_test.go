package staticpool

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// claimsOf is a pool of two replicas with these claims. It records what is deleted.
type claimsOf struct {
	Claims
	names   []string
	deleted []string
}

func (c *claimsOf) All() map[string]*capacity.Claim {
	out := map[string]*capacity.Claim{}
	for _, name := range c.names {
		out[name] = &capacity.Claim{Name: name, Pool: "pool", Launched: true, Drifted: name == "drifted"}
	}
	return out
}

func (c *claimsOf) Known() map[string]*capacity.Claim { return nil }

func (c *claimsOf) StaticClaims(context.Context, string) (int64, bool, map[string]bool, error) {
	out := map[string]bool{}
	for _, name := range c.names {
		out[name] = false
	}
	return 2, true, out, nil
}

func (c *claimsOf) Delete(_ context.Context, name, _ string) error {
	c.deleted = append(c.deleted, name)
	return nil
}

// A node that is too many ends, unless it is a spare, or that isn't known.
func TestNodesThatAreTooMany(t *testing.T) {
	for _, tc := range []struct {
		name                string
		claims              []string
		wanted, known       bool
		wantedThen, knownBy bool // when the claims have been read from the API server
		again               bool
		want                []string
	}{
		{name: "none is", claims: []string{"a", "b"}, known: true, knownBy: true},
		{name: "one is", claims: []string{"a", "b", "c"}, known: true, knownBy: true, again: true, want: []string{"a"}},
		{name: "one that has drifted is", claims: []string{"a", "b", "drifted"}, known: true, knownBy: true, again: true, want: []string{"drifted"}},
		{name: "a spare isn't", claims: []string{"a", "b", "c"}, wanted: true, known: true, wantedThen: true, knownBy: true},
		{name: "another one is", claims: []string{"a", "b", "c", "d"}, wanted: true, known: true, wantedThen: true, knownBy: true, again: true, want: []string{"a"}},
		{name: "it isn't known whether it is", claims: []string{"a", "b", "c"}},
		{name: "that isn't known any more", claims: []string{"a", "b", "c"}, known: true, again: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claims := &claimsOf{names: tc.claims}
			asked := 0
			c := New(Parts{State: NewState(claims, clock.RealClock{}), Claims: claims, Clock: clock.RealClock{},
				Pools: func() []*capacity.Pool { return []*capacity.Pool{{Name: "pool", Replicas: new(int64(2))}} },
				Spare: func(string) (wanted, known bool) {
					if asked++; asked == 1 {
						return tc.wanted, tc.known
					}
					return tc.wantedThen, tc.knownBy
				},
				Nodes:      func(context.Context, func(*capacity.Node, *corev1.Node)) error { return nil },
				Paused:     func() bool { return false },
				Background: func(_ context.Context, f func()) { f() },
			})
			if again := c.Keep(t.Context()); again != tc.again {
				t.Errorf("to be counted again: %v, want %v", again, tc.again)
			}
			slices.Sort(claims.deleted)
			if diff := cmp.Diff(tc.want, claims.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}
