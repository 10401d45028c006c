package budgets

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAllowed(t *testing.T) {
	window := func(nodes, schedule string, d time.Duration, reasons ...karpv1.DisruptionReason) karpv1.Budget {
		return karpv1.Budget{Nodes: nodes, Schedule: &schedule, Duration: &metav1.Duration{Duration: d}, Reasons: reasons}
	}
	always := func(nodes string, reasons ...karpv1.DisruptionReason) karpv1.Budget {
		return karpv1.Budget{Nodes: nodes, Reasons: reasons}
	}
	for _, tc := range []struct {
		name    string
		budgets []karpv1.Budget
		at      time.Duration // after 12:00 on Sunday, the first of March 2026
		total   int
		want    int
	}{
		{name: "no budget", total: 10, want: math.MaxInt32},
		{name: "a number", budgets: []karpv1.Budget{always("3")}, total: 10, want: 3},
		{name: "a share is rounded up", budgets: []karpv1.Budget{always("10%")}, total: 11, want: 2},
		{name: "a share of one node", budgets: []karpv1.Budget{always("10%")}, total: 1, want: 1},
		{name: "a share of nothing", budgets: []karpv1.Budget{always("10%")}, total: 0, want: 0},
		{name: "the least counts", budgets: []karpv1.Budget{always("50%"), always("3"), always("100%")}, total: 10, want: 3},
		{name: "for this reason among others", budgets: []karpv1.Budget{always("3", karpv1.DisruptionReasonDrifted, karpv1.DisruptionReasonEmpty)}, total: 10, want: 3},
		{name: "for another reason", budgets: []karpv1.Budget{always("0", karpv1.DisruptionReasonDrifted), always("4")}, total: 10, want: 4},
		{name: "a window that is open", budgets: []karpv1.Budget{window("1", "0 11 * * *", 2*time.Hour), always("5")}, total: 10, want: 1},
		{name: "at its first moment", budgets: []karpv1.Budget{window("1", "0 12 * * *", time.Hour)}, total: 10, want: 1},
		{name: "at its last", budgets: []karpv1.Budget{window("1", "0 12 * * *", time.Hour)}, at: time.Hour - time.Second, total: 10, want: 1},
		{name: "after it", budgets: []karpv1.Budget{window("1", "0 12 * * *", time.Hour)}, at: time.Hour, total: 10, want: math.MaxInt32},
		{name: "on working days", budgets: []karpv1.Budget{window("0", "0 9 * * mon-fri", 8*time.Hour)}, total: 10, want: math.MaxInt32},
		{name: "on working days, on Monday", budgets: []karpv1.Budget{window("0", "0 9 * * mon-fri", 8*time.Hour)}, at: 24 * time.Hour, total: 10, want: 0},
		{name: "a name for a schedule", budgets: []karpv1.Budget{window("0", "@daily", 13*time.Hour)}, total: 10, want: 0},
		{name: "the day comes every four years", budgets: []karpv1.Budget{window("0", "0 0 29 2 *", time.Hour)}, total: 10, want: math.MaxInt32},
		{name: "the day never comes", budgets: []karpv1.Budget{window("0", "0 0 31 2 *", time.Hour), always("2")}, total: 10, want: 2},
		{name: "nor does any of these", budgets: []karpv1.Budget{window("0", "0 0 31 4,6,9,11 *", time.Hour)}, total: 10, want: math.MaxInt32},
		{name: "a schedule that can't be read", budgets: []karpv1.Budget{window("5", "often", time.Hour), always("7")}, total: 10, want: 0},
		{name: "even for another reason", budgets: []karpv1.Budget{window("5", "often", time.Hour, karpv1.DisruptionReasonDrifted)}, total: 10, want: 0},
		{name: "a number that can't be read", budgets: []karpv1.Budget{always("some")}, total: 10, want: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(epoch.Add(tc.at))
			if got := Allowed(tc.budgets, clock, tc.total, karpv1.DisruptionReasonEmpty); got != tc.want {
				t.Errorf("allowed %d, want %d", got, tc.want)
			}
		})
	}
}
