package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// TestInterruptions tests an account's interruption queue from end to end: the pods of interrupted instances move in time, rebalance
// recommendations are only reported, and the queue is empty afterwards, whatever other messages it contained. Meanwhile the
// credentials with which the scheduler calls AWS appear in none of its output, even at its highest verbosity.
func TestInterruptions(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.idle = true
		s.sim.SpotNotice, s.sim.StateEvents = 40*time.Minute, true // 2 min, at the same speed as everything else
		s.config = func(cfg cluster.Config) { cfg.SetProvisionArgs(map[string]any{"interruptionQueue": "dovetail"}) }
	})
	secrets := map[string]string{"AWS_ACCESS_KEY_ID": "AKIALOOKFORTHISKEY", "AWS_SECRET_ACCESS_KEY": "look/for+this/secret", "AWS_SESSION_TOKEN": "look//for++this//session"}
	for name, value := range secrets {
		e.options.AWSEnv = append(e.options.AWSEnv, name+"="+value)
	}
	e.options.Verbosity = 10
	e.run()
	replicaSets(t, e.c.AdminConfig(), 100)
	e.apply(nodeClass, strings.Replace(nodePool, "[on-demand]", "[spot]", 1))
	alone := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	antiAffine(&alone)
	rs := replicas("web", 3, "500m", "1Gi").(*appsv1.ReplicaSet)
	rs.Spec.Template.Spec.Affinity = alone.Spec.Affinity
	e.create(rs)
	e.running("web", 3)
	e.claimsAre("initialized", func(c *karpv1.NodeClaim) bool {
		return c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()
	})
	e.settled(3)
	first := e.sim.Live()

	queue := sqs.NewFromConfig(e.sim.AdminConfig())
	for _, body := range []string{"no event", `{"source":"aws.ec2","detail-type":"EC2 Moon Landing"}`,
		`{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","time":"2026-11-21T22:00:00Z","detail":{"instance-id":"i-ofanothercluster","instance-action":"terminate"}}`} {
		if _, err := queue.SendMessage(e.ctx, &sqs.SendMessageInput{QueueUrl: awssdk.String(e.sim.QueueURL()), MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
	}
	taken, advised, stopped := first[0], first[1], first[2]
	if err := e.sim.Rebalance(advised.ID); err != nil {
		t.Fatal(err)
	}
	e.claimEvent("SpotRebalanceRecommendation")
	if err := e.sim.Interrupt(taken.ID); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	e.claimEvent("SpotInterrupted")
	e.claimEvent("ReplacementPlanned")
	e.claimsAre("of other instances", func(c *karpv1.NodeClaim) bool { return !strings.HasSuffix(c.Status.ProviderID, "/"+taken.ID) })
	e.running("web", 3)
	e.settled(3)
	for _, in := range e.sim.Instances() {
		if in.ID == taken.ID && strings.Contains(in.Reason, "SpotInstanceTermination") {
			t.Errorf("EC2 was first to end the instance: %s", in.Reason)
		}
		if in.Launched.After(begun) && in.Type == taken.Type && in.Zone == taken.Zone {
			t.Errorf("its place was bought in the pool that was just taken back: %s in %s", in.Type, in.Zone)
		}
	}
	if !slices.ContainsFunc(e.sim.Live(), func(in ec2.Instance) bool { return in.ID == advised.ID }) {
		t.Error("an instance was ended for a recommendation")
	}

	// An instance is terminated from outside: its node is deleted without waiting for the kubelet's heartbeats to be missed.
	dead := ""
	for _, c := range e.claims() {
		if strings.HasSuffix(c.Status.ProviderID, "/"+stopped.ID) {
			dead = c.Status.NodeName
		}
	}
	e.sim.Kill(stopped.ID)
	e.claimEvent("InstanceTerminating")
	e.claimsAre("of other instances, or on its way out", func(c *karpv1.NodeClaim) bool {
		return c.DeletionTimestamp != nil || !strings.HasSuffix(c.Status.ProviderID, "/"+stopped.ID)
	})
	if _, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		n := 0
		for _, p := range pods {
			if cluster.Running(p) && p.DeletionTimestamp == nil && p.Spec.NodeName != dead {
				n++
			}
		}
		return n == 3, fmt.Sprintf("three pods to run elsewhere than on %s: %d do", dead, n), nil
	}, labelled{"web"}); err != nil {
		t.Error(err)
	}
	if n := e.launches(); n != 5 {
		t.Errorf("%d instances were launched, want three and one for each that went", n)
	}
	if err := wait.PollUntilContextCancel(e.wait(), 50*time.Millisecond, true, func(context.Context) (bool, error) { return e.sim.Queued() == 0, nil }); err != nil {
		t.Errorf("%d messages are left on the queue", e.sim.Queued())
	}
	e.silentOn(secrets)
}

// silentOn checks that log, events and objects contain none of these values, and that all calls were made with them.
func (e *env) silentOn(secrets map[string]string) {
	e.Helper()
	if key := e.sim.Calls("CreateFleet")[0].Key; key != secrets["AWS_ACCESS_KEY_ID"] {
		e.Errorf("the scheduler calls with the key %s", key)
	}
	log, err := e.sched.Log()
	if err != nil || !strings.Contains(log, "Request Body") {
		e.Errorf("%d bytes of log, %v: not the most talkative", len(log), err)
	}
	said := map[string]string{"the log": log}
	for _, list := range []client.ObjectList{&corev1.EventList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{}, &ec2nc.EC2NodeClassList{}} {
		if err := e.api.List(e.ctx, list); err != nil {
			e.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			e.Fatal(err)
		}
		said[fmt.Sprintf("%T", list)] = string(text)
	}
	for what, text := range said {
		for name, value := range secrets {
			for _, form := range []string{value, url.QueryEscape(value), base64.StdEncoding.EncodeToString([]byte(value))} {
				if at := strings.Index(text, form); at >= 0 {
					e.Errorf("%s holds %s: %.200s", what, name, text[max(0, at-100):])
				}
			}
		}
	}
}

// claimEvent waits for an event with that reason about any NodeClaim.
func (e *env) claimEvent(reason string) {
	e.Helper()
	_, err := cluster.Until(e.wait(), e.api, &corev1.EventList{}, func(events []*corev1.Event) (bool, string, error) {
		return slices.ContainsFunc(events, func(v *corev1.Event) bool {
			return v.Reason == reason && v.InvolvedObject.Kind == "NodeClaim"
		}), fmt.Sprintf("an event %s of a NodeClaim", reason), nil
	})
	if err != nil {
		e.Fatal(err)
	}
}

// claimsAre waits until so is true for all NodeClaims.
func (e *env) claimsAre(what string, so func(*karpv1.NodeClaim) bool) {
	e.Helper()
	_, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		for _, c := range claims {
			if !so(c) {
				return false, fmt.Sprintf("claim %s to be %s", c.Name, what), nil
			}
		}
		return true, "", nil
	})
	if err != nil {
		e.Fatal(err)
	}
}
