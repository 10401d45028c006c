package record

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestBehind(t *testing.T) {
	for _, tc := range []struct {
		name string
		seen map[types.UID]uint64
		gone map[types.UID]bool
		now  map[types.UID]uint64
		want bool
	}{
		{"nothing there, nothing heard", nil, nil, nil, false},
		{"all heard", map[types.UID]uint64{"a": 5}, nil, map[types.UID]uint64{"a": 5}, false},
		{"heard more than was there", map[types.UID]uint64{"a": 12, "b": 11}, nil, map[types.UID]uint64{"a": 5}, false},
		{"a write not heard of", map[types.UID]uint64{"a": 4}, nil, map[types.UID]uint64{"a": 5}, true},
		{"an object not heard of", nil, nil, map[types.UID]uint64{"a": 5}, true},
		{"an end not heard of", map[types.UID]uint64{"a": 5}, nil, nil, true},
		{"an end heard of", map[types.UID]uint64{"a": 6}, map[types.UID]bool{"a": true}, nil, false},
		{"an end after the list", map[types.UID]uint64{"a": 11}, map[types.UID]bool{"a": true}, map[types.UID]uint64{"a": 5}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := (&kind{seen: tc.seen, gone: tc.gone}).behind(tc.now, 10); got != tc.want {
				t.Errorf("behind is %t, want %t", got, tc.want)
			}
		})
	}
}
