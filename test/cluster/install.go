package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"

	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	"github.com/dovetail-scheduler/dovetail/manifests"
)

// simulatorAccount is the ServiceAccount that simulated kubelets use.
const simulatorAccount = "ec2-simulator"

// The shipped Deployment carries this label.
const nameLabel, schedulerName = "app.kubernetes.io/name", "dovetail-scheduler"

// fieldOwner is the field manager of what this package applies.
const fieldOwner = client.FieldOwner("dovetail-test")

// secondary is the folder of the manifests with which the scheduler runs beside the cluster's own.
const secondary = "secondary"

// NoManifests as the folder of manifests installs neither definitions nor manifests.
const NoManifests = "none"

// Install applies the custom resource definitions and the manifests of a folder (secondary if it is empty), waits until the API server
// serves them, and gets tokens for the scheduler and for simulated kubelets. Start and Adopt call it.
func (c *Cluster) Install(ctx context.Context, folder string) error {
	if folder == "" {
		folder = secondary
	}
	c.folder = folder
	writer := c.Client()
	if err := waitNamespaces(ctx, writer); err != nil {
		return err
	}
	if folder != NoManifests {
		if err := installShipped(ctx, writer, folder); err != nil {
			return err
		}
	}
	if err := createSimulatorAccount(ctx, writer); err != nil {
		return err
	}
	var err error
	if c.scheduler == nil {
		if c.scheduler, err = c.serviceAccountIdentity(ctx, metav1.NamespaceSystem, schedulerName); err != nil {
			return err
		}
	}
	c.nodes, err = c.serviceAccountIdentity(ctx, metav1.NamespaceSystem, simulatorAccount)
	return err
}

// installShipped applies the custom resource definitions and the manifests of a folder, and waits until the API server serves them.
func installShipped(ctx context.Context, writer client.Client, folder string) error {
	for _, crd := range slices.Concat(awsapis.CRDs, karpapis.CRDs) {
		if err := writer.Create(ctx, crd.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating CustomResourceDefinition %s: %w", crd.Name, err)
		}
	}
	for _, f := range []string{"crds", "admission", folder} {
		contents, err := manifests.Folder(f)
		if err != nil {
			return err
		}
		for _, content := range contents {
			if err := apply(ctx, writer, content); err != nil {
				return err
			}
		}
	}
	return waitServed(ctx, writer)
}

// WaitServed waits until every CustomResourceDefinition is established.
func (c *Cluster) WaitServed(ctx context.Context) error { return waitServed(ctx, c.Client()) }

// Apply applies YAML documents (server-side apply), as kubectl apply -f would.
func (c *Cluster) Apply(ctx context.Context, documents []byte) error {
	return apply(ctx, c.Client(), documents)
}

func apply(ctx context.Context, writer client.Client, documents []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading YAML: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		options := []client.ApplyOption{fieldOwner, client.ForceOwnership}
		if object.GetKind() == "Deployment" && object.GetLabels()[nameLabel] == schedulerName {
			// The scheduler runs as a process here, so its Deployment is only validated by the API server.
			options = append(options, client.DryRunAll)
		}
		if err := writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
}

// waitNamespaces waits for the namespaces that the manifests use; the API server creates them shortly after it is ready.
func waitNamespaces(ctx context.Context, reader client.Client) error {
	return poll(ctx, func() error {
		for _, name := range []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, metav1.NamespaceDefault} {
			if err := reader.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); err != nil {
				return fmt.Errorf("reading namespace %s: %w", name, err)
			}
		}
		return nil
	})
}

// waitServed waits until every CustomResourceDefinition is established.
func waitServed(ctx context.Context, reader client.Client) error {
	return poll(ctx, func() error {
		var crds apiextensionsv1.CustomResourceDefinitionList
		if err := reader.List(ctx, &crds); err != nil {
			return fmt.Errorf("listing CustomResourceDefinitions: %w", err)
		}
		for _, crd := range crds.Items {
			if !established(&crd) {
				return fmt.Errorf("CustomResourceDefinition %s is not established", crd.Name)
			}
		}
		return nil
	})
}

// poll calls f until it returns nil or ctx is done. It is for the start of a cluster, when there is nothing to watch yet.
func poll(ctx context.Context, f func() error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// createSimulatorAccount gives simulated kubelets the permissions that the API server gives real ones.
func createSimulatorAccount(ctx context.Context, writer client.Client) error {
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: simulatorAccount}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: simulatorAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: simulatorAccount}},
		},
	} {
		if err := writer.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the simulator's account: %w", err)
		}
	}
	return nil
}
