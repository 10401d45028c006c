package store

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/derived"
)

// cachedClient answers Get and List for the store's kinds from its informers, and for everything else from the API server. Code that
// needs many Pods or Nodes reads them from the scheduler's informers; through this client it gets the API server's current answer.
type cachedClient struct {
	client.Client
	// informers, by the Go types of their objects and of their lists.
	informers map[reflect.Type]*informer
	// derived holds the pools and classes that have no API object of their own.
	derived *derived.Objects
}

func newCachedClient(live client.Client, derived *derived.Objects, informers ...*informer) *cachedClient {
	c := &cachedClient{Client: live, derived: derived, informers: map[reflect.Type]*informer{}}
	for _, i := range informers {
		c.informers[reflect.TypeOf(i.New())] = i
		c.informers[reflect.TypeOf(i.NewList())] = i
	}
	return c
}

// Get fills out with a copy of the cached object, or asks the API server for a kind that isn't cached.
func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	i := c.informers[reflect.TypeOf(out)]
	if i == nil {
		return c.Client.Get(ctx, key, out, opts...)
	}
	var found any
	ok := false
	if karpenter.Derived(key.Name) {
		found, ok = c.derived.Object(i.CustomKind, key.Name)
	} else {
		if err := i.readable(); err != nil {
			return err
		}
		var err error
		if found, ok, err = i.GetStore().GetByKey(key.Name); err != nil {
			return fmt.Errorf("reading %s %s: %w", i.Kind, key.Name, err)
		}
	}
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: i.Group, Resource: i.Resource}, key.Name)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(found.(client.Object).DeepCopyObject()).Elem())
	return nil
}

// List fills out with copies of the cached objects that match. Field selectors are not supported for cached kinds.
func (c *cachedClient) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	i := c.informers[reflect.TypeOf(out)]
	if i == nil {
		return c.Client.List(ctx, out, opts...)
	}
	// If the definition of NodePools or node classes isn't installed, the derived objects are all there are, and listing them is no error. For
	// NodeClaims an empty list would be wrong: instances without a claim are terminated.
	if absent, _ := i.state(); !absent || !c.derived.Makes(i.CustomKind) {
		if err := i.readable(); err != nil {
			return err
		}
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.FieldSelector != nil && !o.FieldSelector.Empty() {
		return fmt.Errorf("listing %s: the cache knows no field selectors", i.Kind)
	}
	selector := o.LabelSelector
	if selector == nil {
		selector = labels.Everything()
	}
	var objects []runtime.Object
	all := i.GetStore().List()
	for _, o := range c.derived.All(i.CustomKind) {
		all = append(all, o)
	}
	for _, found := range all {
		if o := found.(client.Object); selector.Matches(labels.Set(o.GetLabels())) {
			objects = append(objects, o.DeepCopyObject())
		}
	}
	return meta.SetList(out, objects)
}
