// Package apiserver writes to the API server what launching writes besides claims: Nodes, and the end of pods that no kubelet runs.
package apiserver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// writeTimeout is the deadline of one write to the API server.
const writeTimeout = 10 * time.Second

// Cluster is the cluster behind a client.
type Cluster struct {
	client kubernetes.Interface
	podsOn func(node string) []*corev1.Pod
}

// New returns the cluster that is written through a client. podsOn returns the pods that an informer shows bound to a node name.
func New(c kubernetes.Interface, podsOn func(node string) []*corev1.Pod) Cluster {
	return Cluster{c, podsOn}
}

func (a Cluster) PodsOn(node string) []*corev1.Pod { return a.podsOn(node) }

func (a Cluster) EndPod(ctx context.Context, p *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := a.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (a Cluster) CreateNode(ctx context.Context, n *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := a.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	return err
}

func (a Cluster) TryNode(ctx context.Context, n *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := a.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (a Cluster) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}
