package worlds

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

// agents act as other controllers of a cluster: they provision volumes and remove startup taints.
type agents struct {
	ctx  context.Context
	kube kubernetes.Interface
	w    *draw.World
}

// startAgents runs them until ctx is done.
func startAgents(ctx context.Context, cfg *rest.Config, w *draw.World) error {
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making a client for agents: %w", err)
	}
	a := &agents{ctx: ctx, kube: kube, w: w}
	f := informers.NewSharedInformerFactory(kube, 0)
	for informer, look := range map[cache.SharedIndexInformer]func(any){
		f.Core().V1().PersistentVolumeClaims().Informer(): a.provision,
		f.Core().V1().Nodes().Informer():                  a.start,
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }}); err != nil {
			return fmt.Errorf("starting agents: %w", err)
		}
	}
	f.Start(ctx.Done())
	return nil
}

// provision provisions the volume of a PersistentVolumeClaim once its pod has a selected node, as a CSI driver's provisioner does.
func (a *agents) provision(obj any) {
	claim := obj.(*corev1.PersistentVolumeClaim)
	name := claim.Annotations["volume.kubernetes.io/selected-node"]
	if name == "" || claim.Spec.VolumeName != "" {
		return
	}
	go func() {
		node, err := a.kube.CoreV1().Nodes().Get(a.ctx, name, metav1.GetOptions{})
		if err != nil {
			return // it is called again when another node is selected
		}
		pv := draw.Volume("pvc-"+string(claim.UID), node.Labels[corev1.LabelTopologyZone], &corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		})
		pv.Spec.StorageClassName = *claim.Spec.StorageClassName
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": draw.Driver}
		if _, err := a.kube.CoreV1().PersistentVolumes().Create(a.ctx, pv, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) && a.ctx.Err() == nil {
			panic(fmt.Sprintf("making a volume: %v", err))
		}
	}()
}

// start removes the startup taint from a node some time after it has become Ready.
func (a *agents) start(obj any) {
	node := obj.(*corev1.Node)
	starting := func(t corev1.Taint) bool { return t.Key == a.w.StartupTaint }
	if !cluster.Ready(node) || !slices.ContainsFunc(node.Spec.Taints, starting) {
		return
	}
	after := time.Duration(100+int(node.UID[0])*5) * time.Millisecond
	time.AfterFunc(after, func() {
		err := retry.RetryOnConflict(wait.Backoff{Steps: 30, Duration: 10 * time.Millisecond, Factor: 1.5, Cap: time.Second}, func() error {
			n, err := a.kube.CoreV1().Nodes().Get(a.ctx, node.Name, metav1.GetOptions{})
			if err != nil || !slices.ContainsFunc(n.Spec.Taints, starting) {
				return err
			}
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, starting)
			_, err = a.kube.CoreV1().Nodes().Update(a.ctx, n, metav1.UpdateOptions{})
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) && a.ctx.Err() == nil {
			panic(fmt.Sprintf("taking a startup taint away: %v", err))
		}
	})
}
