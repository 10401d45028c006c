package repair

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var policies = Policies{
	{Condition: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute},
	{Condition: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: 30 * time.Minute},
	{Condition: "KernelReady", Status: corev1.ConditionFalse, Toleration: 10 * time.Minute},
	{Condition: cloudprovider.InstanceStatus, Status: corev1.ConditionFalse, Toleration: 2 * time.Minute},
}

func TestFind(t *testing.T) {
	is := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, since time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(since))}
	}
	up := is(corev1.NodeReady, corev1.ConditionTrue, 0)
	impaired := &cloudprovider.Impairment{Check: "its system status check", Since: epoch}
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		impaired   *cloudprovider.Impairment
		override   string
		want       *Fault
	}{
		"healthy":              {conditions: []corev1.NodeCondition{up, is("KernelReady", corev1.ConditionTrue, 0)}},
		"no condition":         {},
		"unknown to no policy": {conditions: []corev1.NodeCondition{up, is("KernelReady", corev1.ConditionUnknown, 0)}},
		"silent": {conditions: []corev1.NodeCondition{is(corev1.NodeReady, corev1.ConditionUnknown, time.Minute)},
			want: &Fault{Condition: "Ready", Text: "its condition Ready is Unknown since 2026-03-01T12:01:00Z", Since: epoch.Add(time.Minute), Due: epoch.Add(31 * time.Minute)}},
		"answers": {conditions: []corev1.NodeCondition{up, is("KernelReady", corev1.ConditionFalse, 0)},
			want: &Fault{Condition: "KernelReady", Text: "its condition KernelReady is False since 2026-03-01T12:00:00Z", Since: epoch, Due: epoch.Add(10 * time.Minute), Grace: 5 * time.Minute}},
		"the first that is due": {conditions: []corev1.NodeCondition{is(corev1.NodeReady, corev1.ConditionFalse, -25*time.Minute), is("KernelReady", corev1.ConditionFalse, 0)},
			want: &Fault{Condition: "Ready", Text: "its condition Ready is False since 2026-03-01T11:35:00Z", Since: epoch.Add(-25 * time.Minute), Due: epoch.Add(5 * time.Minute)}},
		"impaired": {conditions: []corev1.NodeCondition{up}, impaired: impaired,
			want: &Fault{Condition: cloudprovider.InstanceStatus, Text: "its system status check fails since 2026-03-01T12:00:00Z", Since: epoch, Due: epoch.Add(2 * time.Minute), Grace: 5 * time.Minute}},
		"off":                 {conditions: []corev1.NodeCondition{is(corev1.NodeReady, corev1.ConditionFalse, 0)}, impaired: impaired, override: "off"},
		"one off":             {conditions: []corev1.NodeCondition{up}, impaired: impaired, override: "InstanceStatus=off,Ready=1m"},
		"another toleration":  {conditions: []corev1.NodeCondition{up, is("KernelReady", corev1.ConditionFalse, 0)}, override: " KernelReady = 1h ", want: &Fault{Condition: "KernelReady", Text: "its condition KernelReady is False since 2026-03-01T12:00:00Z", Since: epoch, Due: epoch.Add(time.Hour), Grace: 30 * time.Minute}},
		"both forms of Ready": {conditions: []corev1.NodeCondition{is(corev1.NodeReady, corev1.ConditionUnknown, 0)}, override: "Ready=10m", want: &Fault{Condition: "Ready", Text: "its condition Ready is Unknown since 2026-03-01T12:00:00Z", Since: epoch, Due: epoch.Add(10 * time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := policies
			if tc.override != "" {
				var err error
				if p, err = p.Override(tc.override); err != nil {
					t.Fatal(err)
				}
			}
			got := p.Find(&corev1.Node{Status: corev1.NodeStatus{Conditions: tc.conditions}}, tc.impaired)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for _, bad := range []string{"", "on", "Ready", "Ready=", "Ready=-1m", "Ready=0", "DiskPressure=5m", "Ready=10m,"} {
		if p, err := policies.Override(bad); err == nil || len(p) != len(policies) {
			t.Errorf("%q: %v, and %d policies", bad, err, len(p))
		}
	}
	if policies[0].Toleration != 30*time.Minute {
		t.Error("a pool's override has changed the policies of all")
	}
}

func TestBreaker(t *testing.T) {
	for name, tc := range map[string]struct {
		all, unhealthy map[string]int // by zone
		fresh          int            // healthy nodes in zone a, launched since
		open           string         // part of the reason, for a node in zone a
	}{
		"one node":                       {all: map[string]int{"a": 1}, unhealthy: map[string]int{"a": 1}},
		"one of four":                    {all: map[string]int{"a": 4}, unhealthy: map[string]int{"a": 1}},
		"two of four":                    {all: map[string]int{"a": 4}, unhealthy: map[string]int{"a": 2}, open: "2 of 4 nodes of NodePool p are"},
		"two of six, a fifth rounded up": {all: map[string]int{"a": 6}, unhealthy: map[string]int{"a": 2}},
		"three of sixty":                 {all: map[string]int{"a": 20, "b": 20, "c": 20}, unhealthy: map[string]int{"a": 1, "b": 1, "c": 1}},
		"a quarter of a zone":            {all: map[string]int{"a": 20, "b": 20, "c": 20}, unhealthy: map[string]int{"a": 5}, open: "5 of 20 nodes of NodePool p in zone a are"},
		"and their pods run elsewhere":   {all: map[string]int{"a": 20, "b": 20, "c": 20}, unhealthy: map[string]int{"a": 5}, fresh: 5, open: "5 of 20 nodes of NodePool p in zone a are"},
		"the zone has grown":             {all: map[string]int{"a": 20, "b": 20, "c": 20}, unhealthy: map[string]int{"a": 5}, fresh: 10},
		"a quarter of another zone":      {all: map[string]int{"a": 20, "b": 20, "c": 20}, unhealthy: map[string]int{"a": 1, "b": 5}},
		"a small zone of a large pool":   {all: map[string]int{"a": 3, "b": 20}, unhealthy: map[string]int{"a": 2}, open: "in zone a"},
		"a quarter of all":               {all: map[string]int{"a": 20, "b": 20}, unhealthy: map[string]int{"b": 10}, open: "10 of 40 nodes of NodePool p are"},
	} {
		t.Run(name, func(t *testing.T) {
			b := Breaker{}
			for zone, n := range tc.all {
				for i := range n {
					var f *Fault
					if i < tc.unhealthy[zone] {
						f = &Fault{Since: epoch.Add(time.Duration(i) * time.Minute)}
					}
					b.Add("p", zone, epoch.Add(-time.Hour), f)
				}
			}
			for range tc.fresh {
				b.Add("p", "a", epoch.Add(time.Minute), nil)
			}
			b.Add("q", "a", epoch, &Fault{Since: epoch})
			err := b.Open("p", "a")
			if (err != nil) != (tc.open != "") || err != nil && !strings.Contains(err.Error(), tc.open) {
				t.Errorf("open: %v, want %q", err, tc.open)
			}
			if err := b.Open("q", "a"); err != nil {
				t.Errorf("another pool: %v", err)
			}
		})
	}
}
