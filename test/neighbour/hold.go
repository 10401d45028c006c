package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// hold waits for a time in which no node may be replaced, and judges every write of that time.
func (s *system) hold(ctx context.Context, d time.Duration) error {
	before, err := s.recording.Events(ctx)
	if err != nil {
		return err
	}
	began, err := s.state(ctx)
	if err != nil {
		return err
	}

	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("while nothing should happen: %w", context.Cause(ctx))
		case <-time.After(min(left, time.Minute)):
		}
		if err := s.failed(); err != nil {
			return err
		}
		standalone.Say("  %s left", time.Until(end).Round(time.Second))
	}
	after, err := s.recording.Events(ctx)
	if err != nil {
		return err
	}
	ended, err := s.state(ctx)
	if err != nil {
		return err
	}
	for _, w := range append(disturbances(after[len(before):]), ended.wrong()...) {
		s.fault("%s", w)
	}
	new, gone := len(ended.without(began)), len(began.without(ended))
	if new+gone > 0 || len(ended.nodes) != len(began.nodes) || len(ended.instances) != len(began.instances) {
		s.fault("%d claims, %d nodes and %d instances have become %d, %d and %d; %d claims are new, %d are gone", len(began.claims), len(began.nodes), len(began.instances),
			len(ended.claims), len(ended.nodes), len(ended.instances), new, gone)
	}
	standalone.Say("  %s: %d writes of claims and nodes, %d claims new, %d gone; %s", d, len(after)-len(before), new, gone, ended.conditions())
	return nil
}

// disturbances returns which of the writes mean that a node is being replaced, or will be: claims and nodes that are created or deleted,
// claims that are Drifted, nodes with the taint of a disruption. Each is told once for each object.
func disturbances(events []record.Event) (out []string) {
	tell := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, e := range events {
		kind := "node"
		switch o := e.Object.(type) {
		case *karpv1.NodeClaim:
			kind = "claim"
			if drifted := o.StatusConditions().Get(karpv1.ConditionTypeDrifted); drifted != nil && drifted.Status != metav1.ConditionFalse {
				tell("claim %s is Drifted: %s", o.Name, drifted.Reason)
			}
		case *corev1.Node:
			if slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey }) {
				tell("node %s is being disrupted", o.Name)
			}
		}
		switch {
		case e.Type == watch.Added:
			tell("%s %s was created", kind, e.Object.GetName())
		case e.Type == watch.Deleted:
			tell("%s %s is gone", kind, e.Object.GetName())
		case e.Object.GetDeletionTimestamp() != nil:
			tell("%s %s is being deleted", kind, e.Object.GetName())
		}
	}
	return out
}
