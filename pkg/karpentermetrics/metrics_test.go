package karpentermetrics

import "testing"

func TestSnake(t *testing.T) {
	for reason, want := range map[string]string{"Empty": "empty", "RegistrationTimeout": "registration_timeout", "CapacityBlockEnds": "capacity_block_ends", "": ""} {
		if got := snake(reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}
