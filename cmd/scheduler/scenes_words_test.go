package main

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// What users read for each thing that goes wrong in EC2: on the waiting pods, their pool, the node class, and the instance's claim. Each
// text names the cause, by EC2's code.

// failing makes all calls of an action fail from now on.
func failing(action string, f ec2.Fault) func(*chaos.Stage) {
	return func(s *chaos.Stage) { s.Cloud().Before(action, func(*ec2.Request) *ec2.Fault { return &f }) }
}

var (
	throttled = ec2.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	internal  = ec2.Fault{Code: "InternalError", Status: http.StatusInternalServerError, Message: "An internal error has occurred"}
	denied    = ec2.Fault{Code: "UnauthorizedOperation", Status: http.StatusForbidden,
		Message: "You are not authorized to perform this operation. Encoded authorization failure message: " + strings.Repeat("xY1", 400)}
)

const (
	saysThrottled = "RequestLimitExceeded: Request limit exceeded."
	saysInternal  = "InternalError: An internal error has occurred"
	saysDenied    = "UnauthorizedOperation: You are not authorized to perform this operation."
	saysKey       = "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"
)

func TestSceneWordsForEC2sFaults(t *testing.T) {
	type heard struct{ kind, where, text string } // where and text: how it begins, and what it contains
	for _, tt := range []struct {
		name  string
		class func(*ec2nc.EC2NodeClass)
		fault func(*chaos.Stage)
		later func(*chaos.Stage) // when the instances run
		lasts time.Duration      // 0: a minute
		want  []heard
	}{
		{name: "launches are throttled", fault: failing("CreateFleet", throttled), want: []heard{
			{"Pod", "event LaunchDelayed", "is not launched yet, and is tried again: " + saysThrottled},
			{"NodePool", "event LaunchDelayed", "launches fail, and are tried again: " + saysThrottled},
			{"NodeClaim", "condition Launched=Unknown (LaunchDelayed)", saysThrottled},
		}},
		{name: "launches are answered with 500", fault: failing("CreateFleet", internal), want: []heard{
			{"Pod", "event LaunchDelayed", saysInternal}, {"NodePool", "event LaunchDelayed", saysInternal},
		}},
		{name: "launches throttled until they are given up", fault: failing("CreateFleet", throttled), lasts: 8 * time.Minute, want: []heard{
			{"NodeClaim", "event LaunchTimeout", "nothing was launched within 5m0s: " + saysThrottled},
			{"Pod", "event LaunchFailed", saysThrottled},
			{"NodePool", "condition NodeRegistrationHealthy=False (RegistrationFailed)", saysThrottled},
		}},
		{name: "launches are not allowed", fault: failing("CreateFleet", denied), lasts: 3 * time.Minute, want: []heard{
			{"Pod", "event LaunchFailed", "was not launched: " + saysDenied},
			{"NodePool", "condition NodeRegistrationHealthy=False (LaunchRefused)", saysDenied},
		}},
		{name: "launch templates are throttled", fault: failing("CreateLaunchTemplate", throttled), want: []heard{
			{"Pod", "event LaunchFailed", "was not launched: creating launch template karpenter.k8s.aws/"}, {"Pod", "event LaunchFailed", saysThrottled},
		}},
		{name: "there is no capacity", fault: func(s *chaos.Stage) { s.Cloud().SetCapacity(ec2.Any, ec2.Any, ec2.Any, 0) }, want: []heard{
			{"Pod", "event LaunchFailed", "InsufficientInstanceCapacity: We currently do not have sufficient"},
		}},
		{name: "a volume that can't be made", class: func(c *ec2nc.EC2NodeClass) {
			c.Spec.BlockDeviceMappings = []*ec2nc.BlockDeviceMapping{{DeviceName: ptr.To("/dev/xvda"), EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("8Gi")), VolumeType: ptr.To("gp3")}}}
		}, want: []heard{{"Pod", "event LaunchFailed", "InvalidBlockDeviceMapping: Volume of size 8GB is smaller than snapshot"}}},
		{name: "instances die at birth", fault: func(s *chaos.Stage) { s.Cloud().EndNew(-1, saysKey) }, lasts: 3 * time.Minute, want: []heard{
			{"NodeClaim", "event InstanceEnded", "the instance is terminated: " + saysKey},
			{"Pod", "event FailedProvisioning", "Client.InvalidKMSKey.InvalidState: The KMS key"},
			{"EC2NodeClass", "condition dovetail.sh/LaunchesPaused=True", saysKey},
		}},
		{name: "subnets can't be asked for, throttled", fault: failing("DescribeSubnets", throttled), want: []heard{
			{"EC2NodeClass", "condition SubnetsReady=Unknown (NotAnswered)", saysThrottled},
			{"Pod", "event FailedProvisioning", saysThrottled},
		}},
		{name: "subnets may not be asked for", fault: failing("DescribeSubnets", denied), want: []heard{
			{"EC2NodeClass", "condition SubnetsReady=Unknown (NotAnswered)", saysDenied}, {"Pod", "event FailedProvisioning", saysDenied},
		}},
		{name: "images are answered with 500", fault: failing("DescribeImages", internal), want: []heard{
			{"EC2NodeClass", "condition AMIsReady=Unknown (NotAnswered)", saysInternal},
		}},
		{name: "more tags than EC2 takes", class: func(c *ec2nc.EC2NodeClass) {
			c.Spec.Tags = map[string]string{}
			for i := range 45 {
				c.Spec.Tags["team-"+strings.Repeat("x", i)] = "a"
			}
		}, want: []heard{
			{"EC2NodeClass", "condition ValidationSucceeded=False (Invalid)", "spec.tags: 45 tags and the 7 that Dovetail adds to every instance are 52; EC2 allows 50 on an instance"},
			{"NodePool", "", "spec.tags: 45 tags"},
			{"Pod", "event FailedProvisioning", "spec.tags: 45 tags"},
		}},
		{name: "tags are not allowed", fault: failing("CreateTags", denied), lasts: 3 * time.Minute, want: []heard{
			{"NodeClaim", "event FailedTagging", saysDenied},
		}},
		{name: "instances can't be ended", lasts: 3 * time.Minute, later: func(s *chaos.Stage) {
			failing("TerminateInstances", denied)(s)
			chaos.Change(s, web(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
		}, want: []heard{
			{"NodeClaim", "event FailedTermination", "retrying: terminating instance i-"}, {"NodeClaim", "event FailedTermination", saysDenied},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			play(t, chaos.Scene{Play: func(s *chaos.Stage) {
				class := chaos.Class("default")
				if tt.class != nil {
					tt.class(class)
				}
				if tt.fault != nil {
					tt.fault(s)
				}
				s.Create(class, chaos.Pool("default", "default"), web())
				said := s.Listen()
				s.Limit(100)
				s.Start()
				if tt.later != nil {
					s.Until("all run", mended, s.Running(map[string]int{"web": 2}))
					tt.later(s)
				}
				s.Pass(max(tt.lasts, time.Minute))
				for _, want := range tt.want {
					if !slices.ContainsFunc(said(), func(h chaos.Sentence) bool {
						return h.Kind == want.kind && strings.HasPrefix(h.Where, want.where) && strings.Contains(h.Text, want.text)
					}) {
						s.Failf("no %s says in %q: %s", want.kind, want.where, want.text)
					}
				}
				told := map[chaos.Sentence]int{}
				for _, h := range said() {
					if text := h.Text; h.Kind == "NodePool" || h.Kind == "EC2NodeClass" {
						if h.Text = ""; told[h] == 3 {
							s.Failf("one cause is told in more than three ways: %s: %s", h, text)
						}
						told[h]++
						h.Text = text
					}
					s.Note("%s", h)
					if why := unreadable(h.Text); why != "" {
						s.Failf("%s: %s", why, h)
					}
				}
			}})
		})
	}
}

// web is two pods that need an instance each.
func web() *appsv1.Deployment { return chaos.Deployment(2, chaos.Template("web", "3", "1Gi")) }

// Words of the SDK and of Go, not of EC2.
var forSpecialists = []string{"RequestID", "request id", "Request ID", "operation error", "https response error", "api error", "StatusCode", "context deadline exceeded",
	"context canceled", "exceeded maximum number of attempts", "Encoded authorization"}

// unreadable returns what is wrong with a sentence, whatever it is about: words that don't help users, a repeated clause, a missing end.
func unreadable(text string) string {
	for _, w := range forSpecialists {
		if strings.Contains(strings.ToLower(text), strings.ToLower(w)) {
			return "has " + w
		}
	}
	text, _, _ = strings.Cut(text, " preemption: ") // kube-scheduler's own, which counts the nodes once more
	seen := map[string]bool{}
	for _, clause := range clauses.Split(text, -1) {
		if clause = strings.TrimSpace(clause); len(strings.Fields(clause)) < 2 {
			continue
		}
		if seen[clause] {
			return "says twice: " + clause
		}
		seen[clause] = true
	}
	if len(text) > 1000 {
		return "is too long to be read"
	}
	return ""
}

// clauses are separated by these.
var clauses = regexp.MustCompile(`: |; |\. |, `)

func TestUnreadable(t *testing.T) {
	for text, bad := range map[string]bool{
		"node a was not launched: UnauthorizedOperation: You are not authorized.":                                            false,
		"launching 1 instances: operation error EC2: CreateFleet, https response error StatusCode: 403, RequestID: 1, api e": true,
		"tagging instance i-1: tagging instance i-1: refused":                                                                true,
		"0/2 nodes are available: its node is being launched. its node is being launched":                                    true,
		"describing subnets: context deadline exceeded":                                                                      true,
	} {
		if why := unreadable(text); (why != "") != bad {
			t.Errorf("%q: %q", text, why)
		}
	}
}
