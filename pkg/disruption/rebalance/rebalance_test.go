package rebalance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func claim(capacityType string, age time.Duration, annotations map[string]string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(-age)), Annotations: annotations,
		Labels: map[string]string{karpv1.CapacityTypeLabelKey: capacityType}}}
}

// A recommendation counts for a day, for spot capacity that has been used for ten minutes.
func TestDue(t *testing.T) {
	at := func(ago time.Duration) map[string]string {
		return map[string]string{objects.AnnotationRebalanceRecommended: noon.Add(-ago).Format(time.RFC3339)}
	}
	for name, tc := range map[string]struct {
		claim *karpv1.NodeClaim
		want  bool
	}{
		"now":                 {claim("spot", time.Hour, at(0)), true},
		"a young node":        {claim("spot", 10*time.Minute-time.Second, at(0)), false},
		"just old enough":     {claim("spot", 10*time.Minute, at(5*time.Minute)), true},
		"nearly a day ago":    {claim("spot", 48*time.Hour, at(24*time.Hour-time.Second)), true},
		"a day ago":           {claim("spot", 48*time.Hour, at(24*time.Hour)), false},
		"on demand":           {claim("on-demand", time.Hour, at(0)), false},
		"nothing recommended": {claim("spot", time.Hour, nil), false},
		"it can't be read":    {claim("spot", time.Hour, map[string]string{objects.AnnotationRebalanceRecommended: "soon"}), false},
	} {
		if _, got := Due(tc.claim, noon); got != tc.want {
			t.Errorf("%s: due %v, want %v", name, got, tc.want)
		}
	}
}

// A node returns half an hour after it was bought, or after this process knows what is available.
func TestReturnsAt(t *testing.T) {
	want := map[string]string{objects.AnnotationForWantOfSpot: "true"}
	for name, tc := range map[string]struct {
		claim   *karpv1.NodeClaim
		watched time.Time
		want    time.Time
		rest    time.Duration
	}{
		"bought while this process watched": {claim("on-demand", 10*time.Minute, want), noon.Add(-time.Hour), noon.Add(20 * time.Minute), 30 * time.Minute},
		"bought before":                     {claim("on-demand", 2*time.Hour, want), noon.Add(-time.Hour), noon.Add(-30 * time.Minute), 30 * time.Minute},
		"spot after all":                    {claim("spot", 2*time.Hour, want), noon.Add(-time.Hour), time.Time{}, 0},
		"not for want of spot":              {claim("on-demand", 2*time.Hour, nil), noon.Add(-time.Hour), time.Time{}, 0},
	} {
		if got := ReturnsAt(tc.claim, tc.watched); !got.Equal(tc.want) || Rest(tc.claim) != tc.rest {
			t.Errorf("%s: returns at %s, want %s; rests for %s, want %s", name, got, tc.want, Rest(tc.claim), tc.rest)
		}
	}
}
