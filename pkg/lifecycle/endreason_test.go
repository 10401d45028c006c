package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// EC2 reports why it has ended an instance that it couldn't start. The reason is reported once on claim and Node, to the pods and to the
// spending guard, however often the deletion of the claim has to be repeated.
func TestWhyAnInstanceEndedIsReported(t *testing.T) {
	const reason = "Client.VolumeLimitExceeded: Volume limit exceeded"
	for _, tc := range []struct {
		name string
		end  func(*capacity.Instance)
		want string
	}{
		{"EC2 says why", func(i *capacity.Instance) { i.State, i.EndReason = capacity.InstanceTerminated, reason }, "the instance is terminated: " + reason},
		{"on its way out", func(i *capacity.Instance) { i.State, i.EndReason = capacity.InstanceShuttingDown, reason }, "the instance is shutting-down: " + reason},
		{"EC2 doesn't say why", func(i *capacity.Instance) { i.State = capacity.InstanceTerminated }, "the instance is terminated"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			var told []string
			w.givingUp = func(claim, why string, f *guard.Fault) { told = append(told, claim+": "+why+"; "+f.Message) }
			claim, inst := w.launched("a")
			w.createNode(nodeFor(claim, *inst))
			w.step()
			tc.end(inst)
			w.keepsClaims = errors.New("the API server is busy")
			for range 3 {
				w.clock.Step(watchEvery)
				if _, err := w.c.reconcileClaim(w.ctx, "a"); !errors.Is(err, w.keepsClaims) {
					t.Fatalf("reconciling: %v", err)
				}
			}
			w.keepsClaims = nil
			w.pass(30*time.Second, 5*time.Second)
			var got []string
			for _, e := range w.events {
				if strings.Contains(e, " InstanceEnded: ") {
					got = append(got, e)
				}
			}
			want := []string{"a Warning InstanceEnded: giving up NodeClaim a: " + tc.want, inst.NodeName + " Warning InstanceEnded: giving up NodeClaim a: " + tc.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if len(told) == 0 || told[0] != "a: "+tc.want+"; "+tc.want {
				t.Errorf("told %q", told)
			}
		})
	}
}

// Tags that EC2 refuses are reported once and tried again each minute; other stages go on.
func TestRefusedTagsAreReported(t *testing.T) {
	w := newWorld(t)
	denied := fmt.Errorf("tagging instance i-a: UnauthorizedOperation: You are not authorized to perform this operation.%w", refusal{})
	w.cloud.fail["TagClaim"] = denied
	w.up("a")
	calls := w.cloud.calls["TagClaim"]
	w.pass(3*time.Minute, time.Second)
	if n := w.cloud.calls["TagClaim"] - calls; n < 2 || n > 4 {
		t.Errorf("tried %d times in three minutes", n)
	}
	var got []string
	for _, e := range w.events {
		if strings.Contains(e, "FailedTagging") {
			got = append(got, e)
		}
	}
	if diff := cmp.Diff([]string{"a Warning FailedTagging: retrying: " + denied.Error()}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	delete(w.cloud.fail, "TagClaim")
	w.pass(2*time.Minute, time.Second)
	if w.cloud.instances["i-a"].Claim != "a" {
		t.Error("not tagged when it was allowed")
	}
}

// refusal is ErrRefused without a text of its own, as errors of the cloud have it.
type refusal struct{}

func (refusal) Error() string { return "" }
func (refusal) Unwrap() error { return capacity.ErrRefused }

// A claim that is given up because nothing was launched says how the launch calls failed.
func TestALaunchTimeoutNamesItsCause(t *testing.T) {
	for reason, want := range map[string]string{
		reasonLaunchDelayed:      "nothing was launched within 5m0s: RequestLimitExceeded: Request limit exceeded.",
		"AwaitingReconciliation": "nothing was launched within 5m0s",
	} {
		w := newWorld(t)
		w.launched("a", func(c *karpv1.NodeClaim) {
			c.Status = karpv1.NodeClaimStatus{}
			c.StatusConditions(status.WithClock(w.clock)).SetUnknownWithReason(karpv1.ConditionTypeLaunched, reason, "RequestLimitExceeded: Request limit exceeded.")
		})
		w.pass(launchTimeout+10*time.Second, 5*time.Second)
		if got := "a Warning LaunchTimeout: giving up NodeClaim a: " + want; !slices.Contains(w.events, got) {
			t.Errorf("events %q, want %q", w.events, got)
		}
	}
}
