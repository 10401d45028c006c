package store

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// fakeAPI is controller-runtime's fake client, which behaves like an API server except that a watch doesn't start with the existing
// objects (and it says so). It can also lack definitions.
type fakeAPI struct {
	client.WithWatch
	mu      sync.Mutex
	missing map[string]bool // by list kind
	watches map[string]int  // by list kind
	// malformed objects, which the fake client can't store, are added to lists; patches of them are stored in answers.
	malformed map[string][]*unstructured.Unstructured
	answers   map[string][]byte

	refused      []error             // by the definitions
	patches      []string            // object and subresource of each patch
	afterCreate  func(client.Object) // called before the answer is given
	beforeStatus func(client.Object)
	beforeDelete func()
	hang         bool // status requests wait until their context ends
}

func (*fakeAPI) IsWatchListSemanticsUnSupported() bool { return true }

func newFakeAPI(objects ...client.Object) *fakeAPI {
	api := &fakeAPI{
		missing: map[string]bool{}, watches: map[string]int{},
		malformed: map[string][]*unstructured.Unstructured{}, answers: map[string][]byte{},
	}
	check := func(list client.ObjectList) error {
		api.mu.Lock()
		defer api.mu.Unlock()
		kind := list.GetObjectKind().GroupVersionKind().Kind
		if api.missing[kind] {
			return apierrors.NewNotFound(schema.GroupResource{}, kind)
		}
		return nil
	}
	scheme := karpenter.Scheme(nodeclass.Kind)
	api.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodePool{}, &karpv1.NodeClaim{}, &karpv1alpha1.NodeOverlay{}, &ec2nc.EC2NodeClass{},
			&legacy.Provisioner{}, &legacy.AWSNodeTemplate{}, &autoscalingv1beta1.CapacityBuffer{}, &provisioningv1.ProvisioningRequest{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				api.mu.Lock()
				missing := api.missing[o.GetObjectKind().GroupVersionKind().Kind+"List"]
				api.mu.Unlock()
				if missing { // the answer for a path that isn't served
					return apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", schema.GroupResource{}, key.Name, "404 page not found", 0, true)
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if err := check(list); err != nil {
					return err
				}
				if err := c.List(ctx, list, opts...); err != nil {
					return err
				}
				if l, ok := list.(*unstructured.UnstructuredList); ok {
					for _, u := range api.malformed[l.GetKind()] {
						l.Items = append(l.Items, *u.DeepCopy())
					}
				}
				return nil
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if len(api.malformed[o.GetObjectKind().GroupVersionKind().Kind+"List"]) > 0 && o.GetName() == "bad" {
					data, err := patch.Data(o)
					api.mu.Lock()
					defer api.mu.Unlock()
					api.answers[o.GetObjectKind().GroupVersionKind().Kind+" bad"] = data
					return err
				}
				if api.beforeStatus != nil {
					api.beforeStatus(o)
				}
				if api.hang {
					<-ctx.Done()
					return ctx.Err()
				}
				api.patched(o, sub)
				return api.accept(c.SubResource(sub).Patch(ctx, o, patch, opts...), o, sub)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				api.patched(o, "")
				return api.accept(c.Patch(ctx, o, patch, opts...), o, "")
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if api.beforeDelete != nil {
					api.beforeDelete()
				}
				if err := uidHolds(ctx, c, o, opts); err != nil {
					return err
				}
				return c.Delete(ctx, o, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				o.SetCreationTimestamp(metav1.Time{Time: start}) // the fake client sets none
				err := api.accept(c.Create(ctx, o, opts...), o, "")
				if err == nil && api.afterCreate != nil {
					api.afterCreate(o)
				}
				return err
			},
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
				if err := check(list); err != nil {
					return nil, err
				}
				w, err := c.Watch(ctx, list, opts...)
				api.mu.Lock()
				defer api.mu.Unlock()
				api.watches[list.GetObjectKind().GroupVersionKind().Kind]++
				return w, err
			},
		}).Build()
	return api
}

// accept returns the error of an API server with the shipped definitions for an object that was written. An invalid spec that existed
// before does not prevent a write of the status.
func (api *fakeAPI) accept(err error, o client.Object, part string) error {
	if err != nil {
		return err
	}
	gvk, err := api.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	o = o.DeepCopyObject().(client.Object)
	o.GetObjectKind().SetGroupVersionKind(gvk)
	err = acceptable(o, part)
	if err != nil {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.refused = append(api.refused, err)
	}
	return err
}

func (api *fakeAPI) patched(o client.Object, sub string) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.patches = append(api.patches, strings.TrimSuffix(o.GetName()+"/"+sub, "/"))
}

func (api *fakeAPI) broken(k karpenter.CustomKind, u *unstructured.Unstructured) {
	api.malformed[k.Kind+"List"] = append(api.malformed[k.Kind+"List"], u)
}

func (api *fakeAPI) install(kinds ...karpenter.CustomKind) {
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, k := range kinds {
		delete(api.missing, k.Kind+"List")
	}
}

// body returns what was written to the status of a malformed object.
func (api *fakeAPI) body(object string) []byte {
	api.mu.Lock()
	defer api.mu.Unlock()
	return api.answers[object]
}

func (api *fakeAPI) watched(kinds ...karpenter.CustomKind) bool {
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, k := range kinds {
		if api.watches[k.Kind+"List"] == 0 {
			return false
		}
	}
	return true
}

// uidHolds checks the precondition on the UID, as the API server does; the fake client ignores it.
func uidHolds(ctx context.Context, c client.Reader, o client.Object, opts []client.DeleteOption) error {
	var with client.DeleteOptions
	with.ApplyOptions(opts)
	if with.Preconditions == nil || with.Preconditions.UID == nil {
		return nil
	}
	now := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return err
	}
	if now.GetUID() != *with.Preconditions.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, o.GetName(), errors.New("Precondition failed: UID"))
	}
	return nil
}
