package main

import (
	"context"
	"errors"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// EC2 has not taken back an instance that dies while it boots, although its end is reported in the same way.
func TestTakenByEC2(t *testing.T) {
	for _, tt := range []struct {
		name  string
		claim *capacity.Claim
		inst  capacity.Instance
		err   error
		want  bool
	}{
		{"by its reason", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "spot"}, capacity.Instance{Taken: true}, nil, true},
		{"it died", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "spot"}, capacity.Instance{}, nil, false},
		{"spot of which nothing is known", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "spot"}, capacity.Instance{}, errors.New("throttled"), true},
		{"on demand of which nothing is known", &capacity.Claim{ProviderID: "aws:///a/i-1", CapacityType: "on-demand"}, capacity.Instance{}, errors.New("throttled"), false},
		{"no claim any more", nil, capacity.Instance{}, nil, true},
	} {
		got := taken(t.Context(), tt.claim, func(_ context.Context, id string) (capacity.Instance, error) {
			if id != "i-1" {
				t.Errorf("asked for %q", id)
			}
			return tt.inst, tt.err
		})
		if got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
