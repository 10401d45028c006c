package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// kubelets report the nodes ready that the kwok provider creates, report their pods running, and end pods that are deleted. They renew
// nothing: no node lifecycle controller runs.
type kubelets struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	pods   corelisters.PodLister
}

// run works until ctx is done. What fails is tried again the next time.
func (k *kubelets) run(ctx context.Context) {
	clock := time.NewTicker(200 * time.Millisecond)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("A kubelet will try again", "err", err)
		}
	}
}

func (k *kubelets) sync(ctx context.Context) error {
	nodes, err := k.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := k.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for _, n := range nodes {
		if !cluster.Ready(n) {
			group.Go(func() error { return k.ready(ctx, n) })
		}
	}
	for _, p := range pods {
		switch {
		case p.Spec.NodeName == "":
		case p.DeletionTimestamp != nil:
			group.Go(func() error { return k.end(ctx, p) })
		case p.Status.Phase == corev1.PodPending:
			group.Go(func() error { return k.begin(ctx, p) })
		}
	}
	return group.Wait()
}

func (k *kubelets) ready(ctx context.Context, n *corev1.Node) error {
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}}})
	if err == nil {
		_, err = k.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reporting node %s ready: %w", n.Name, err)
	}
	return nil
}

func (k *kubelets) begin(ctx context.Context, p *corev1.Pod) error {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		_, err = k.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reporting pod %s running: %w", p.Name, err)
	}
	return nil
}

func (k *kubelets) end(ctx context.Context, p *corev1.Pod) error {
	err := k.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("ending pod %s: %w", p.Name, err)
	}
	return nil
}
