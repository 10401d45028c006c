package staticpool

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/test/fixtures"
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

// commits records how many nodes are launched.
type commits int

func (c *commits) Commit(_ context.Context, p *provisioning.Proposal) provisioning.Outcome {
	*c += commits(len(p.Plan.Nodes))
	return provisioning.Outcome{}
}

func (c *claimsOf) TellPool(pool, _, reason, note string) { panic(pool + ": " + reason + ": " + note) }

// moved is a pool of which another Dovetail has claims: these aren't cached, and take the place of replicas.
type moved struct {
	claimsOf
	others, asked int
}

func (m *moved) StaticClaims(ctx context.Context, pool string) (int64, bool, map[string]bool, error) {
	m.asked++
	replicas, there, claims, err := m.claimsOf.StaticClaims(ctx, pool)
	return max(0, replicas-int64(m.others)), there, claims, err
}

// As long as claims of another Dovetail take the place of replicas, the API server is asked about once a minute, and no node is launched. When one of
// them ends, the pool gets one of its own within a minute.
func TestClaimsOfAnotherTakeThePlaceOfReplicas(t *testing.T) {
	for _, tc := range []struct {
		name           string
		claims         []string
		others, thenBy int
		want           commits
	}{
		{name: "all", others: 2, thenBy: 1, want: 1},
		{name: "one of two", claims: []string{"a"}, others: 1, want: 1},
		{name: "more than replicas", others: 4, thenBy: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(fixtures.Start)
			types := fixtures.TwoTypes()
			for _, typ := range types {
				typ.Allocatable[corev1.ResourcePods] = 29
			}
			claims := &moved{claimsOf: claimsOf{names: tc.claims}, others: tc.others}
			launched := new(commits)
			c := New(Parts{State: NewState(claims, clk), Claims: claims, Clock: clk,
				Pools: func() []*capacity.Pool {
					return []*capacity.Pool{{Name: "pool", Replicas: new(int64(2)), Types: types}}
				},
				Daemons:   func() []*capacity.DaemonSet { return nil },
				Spare:     func(string) (wanted, known bool) { return false, true },
				Headroom:  func() (int, string) { return 10, "" },
				Committer: launched,
				Paused:    func() bool { return false },
			})
			// serve is Serve for a time.
			again, looked := true, time.Time{}
			serve := func(d time.Duration, until func() bool) {
				for end := clk.Now().Add(d); clk.Now().Before(end) && !until(); clk.Step(poll) {
					if now := clk.Now(); again || now.Sub(looked) >= resync {
						again, looked = c.Keep(t.Context()), now
					}
				}
			}
			serve(time.Hour, func() bool { return *launched > 0 })
			if claims.asked > 70 || *launched > 0 {
				t.Errorf("asked %d times in an hour, %d nodes launched; want one a minute, and no node", claims.asked, *launched)
			}
			asked := claims.asked
			serve(2*resync, func() bool { return claims.asked > asked })
			claims.others = tc.thenBy // just after the API server was asked
			has := func() bool { return *launched > 0 }
			serve(resync-4*poll, has)
			again = true // something else has changed, in this pool or another
			serve(5*poll, has)
			if *launched != tc.want {
				t.Errorf("%d nodes launched when one of the other's has ended, want %d", *launched, tc.want)
			}
		})
	}
}
