package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// EC2 has not taken back an instance that dies while it boots, although its end is reported in the same way.
func TestTakenByEC2(t *testing.T) {
	for _, tt := range []struct {
		name    string
		claim   *capacity.Claim
		inst    capacity.Instance
		err     error
		decided bool
		want    bool
		asked   int
	}{
		{"by its reason", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "spot"}, capacity.Instance{Taken: true}, nil, false, true, 1},
		{"it died", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "spot"}, capacity.Instance{}, nil, false, false, 1},
		{"spot of which nothing is known", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "spot"}, capacity.Instance{}, errors.New("throttled"), false, true, 1},
		{"on demand of which nothing is known", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "on-demand"}, capacity.Instance{}, errors.New("throttled"), false, false, 1},
		{"no claim any more", nil, capacity.Instance{}, nil, false, true, 0},
		{"it has served", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "spot"}, capacity.Instance{}, nil, true, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			e := &endCauses{claim: func(string) *capacity.Claim { return tt.claim }, decided: func(string) bool { return tt.decided },
				describe: func(_ context.Context, id string) (capacity.Instance, error) {
					asked++
					if id != "i-1" {
						t.Errorf("asked for %q", id)
					}
					return tt.inst, tt.err
				}}
			if known := e.known(t.Context(), "c"); known != (tt.asked == 0) {
				t.Errorf("%s: known at once: %v", tt.name, known)
			}
			synctest.Wait()
			if !e.known(t.Context(), "c") {
				t.Errorf("%s: not known in the end", tt.name)
			}
			if got := e.taken("c"); got != tt.want || asked != tt.asked {
				t.Errorf("%s: taken %v, asked %d times; want %v, %d", tt.name, got, asked, tt.want, tt.asked)
			}
		})
	}
}

// Many instances end at a time while EC2 doesn't answer. All are asked for together, and the asking ends.
func TestTakenByEC2ThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		claims := map[string]*capacity.Claim{}
		for i := range many {
			name := fmt.Sprint("c", i)
			claims[name] = &capacity.Claim{Name: name, ProviderID: fmt.Sprint("aws:///a/i-", i), CapacityType: "on-demand"}
		}
		gone := false
		e := &endCauses{decided: func(string) bool { return false },
			claim: func(name string) *capacity.Claim {
				if gone && name != "c0" {
					return nil
				}
				return claims[name]
			},
			describe: func(ctx context.Context, _ string) (capacity.Instance, error) {
				<-ctx.Done()
				return capacity.Instance{}, ctx.Err()
			}}
		known := func() (n int) {
			for name := range claims {
				if e.known(t.Context(), name) {
					n++
				}
			}
			return n
		}
		if n := known(); n != 0 {
			t.Errorf("%d causes are known before EC2 has answered", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), describeLimit)
		<-ctx.Done()
		cancel()
		synctest.Wait()
		if n := known(); n != many {
			t.Errorf("%d causes are known after %s, want %d", n, describeLimit, many)
		}
		gone, claims["c0"].ProviderID = true, "aws:///a/i-new"
		e.known(t.Context(), "c0")
		if n := len(e.asked); n > 2 {
			t.Errorf("%d instances are remembered, most of which are gone", n)
		}
		ctx, cancel = context.WithTimeout(t.Context(), describeLimit)
		<-ctx.Done()
		cancel()
	})
}
