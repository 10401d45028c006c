package chaos

import (
	"context"
	"errors"
	"strings"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/test/outside"
)

// manageCloudNodes is the node lifecycle part of a cloud controller manager: it deletes a Node that isn't Ready and whose instance the
// cloud doesn't know or shows as terminated.
func (w *world) manageCloudNodes(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := w.factory.Core().V1().Nodes().Lister().List(labels.Everything())
		if err != nil {
			continue
		}
		for _, n := range list {
			if n.Spec.ProviderID == "" || n.DeletionTimestamp != nil || outside.Ready(n) || w.exists(ctx, n.Spec.ProviderID) {
				continue
			}
			w.cloudEnds(n.Spec.ProviderID)
			_, _ = w.kube.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: n.Name + "."},
				Reason: "DeletingNode", InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: n.Name, UID: n.UID}}, metav1.CreateOptions{}) // may be lost
			_ = w.kube.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}) // repeated at the next tick if it fails
		}
	}
}

// exists asks the cloud for the instance; after an error it returns true.
func (w *world) exists(ctx context.Context, providerID string) bool {
	id := providerID[strings.LastIndexByte(providerID, '/')+1:]
	out, err := w.cloud.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{id}})
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "InvalidInstanceID.NotFound" {
		return false
	}
	if err != nil || len(out.Reservations) == 0 || len(out.Reservations[0].Instances) == 0 {
		return err != nil
	}
	return out.Reservations[0].Instances[0].State.Name != types.InstanceStateNameTerminated
}
