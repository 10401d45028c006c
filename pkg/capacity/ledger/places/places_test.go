package places

import (
	"testing"
	"time"
)

func TestKept(t *testing.T) {
	now := time.Unix(0, 0)
	var k Kept
	if got := k.Take(7); got != 7 || k.Before(100) {
		t.Errorf("of none that are kept %d is taken", got)
	}
	k.Keep(5, now)
	k.Keep(3, now)
	k.Keep(4, now.Add(hold/2))
	if k.Before(3) || !k.Before(4) {
		t.Error("3 is the first place: it is before 4, and not before itself")
	}
	if got := k.Take(7); got != 3 {
		t.Errorf("taken %d, want the first one", got)
	}
	k.Tick(now.Add(hold))
	if k.Before(4) || !k.Before(6) {
		t.Error("4 is kept a little longer than 5")
	}
	k.Tick(now.Add(2 * hold))
	if k.Before(6) {
		t.Error("places are kept for ever")
	}
}
