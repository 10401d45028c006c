package livecluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// pageSize is how many objects one request asks for, as kubectl does.
const pageSize = "500"

// resource is what is listed, and what is lost without it.
type resource struct {
	path     string
	without  string // what can't be known if the user may not list it; empty: nothing works without it
	selector string // of fields
}

// resources are all kinds that influence plans, and the events.
var resources = []resource{
	{path: "/api/v1/nodes"},
	// Pods that have ended take no capacity, and there may be many.
	{path: "/api/v1/pods", selector: "status.phase!=Succeeded,status.phase!=Failed"},
	{path: "/apis/karpenter.sh/v1/nodepools"},
	{path: "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"},
	{path: "/apis/karpenter.sh/v1/nodeclaims"},
	{path: "/apis/karpenter.sh/v1alpha1/nodeoverlays", without: "prices and capacity that overlays set"},
	{path: "/apis/karpenter.sh/v1alpha5/provisioners", without: "pools that are Provisioners"},
	{path: "/apis/karpenter.k8s.aws/v1alpha1/awsnodetemplates", without: "classes that are AWSNodeTemplates"},
	{path: "/api/v1/namespaces", without: "labels of namespaces, which affinity terms may select"},
	{path: "/apis/apps/v1/daemonsets", without: "what DaemonSets need on new nodes"},
	{path: "/apis/apps/v1/replicasets", without: "default spread constraints", selector: ""},
	{path: "/api/v1/services", without: "default spread constraints"},
	{path: "/api/v1/limitranges", without: "default requests of DaemonSets' pods"},
	{path: "/apis/scheduling.k8s.io/v1/priorityclasses", without: "priorities of DaemonSets' pods"},
	{path: "/apis/node.k8s.io/v1/runtimeclasses", without: "overhead of DaemonSets' pods"},
	{path: "/api/v1/persistentvolumeclaims", without: "volumes of pods"},
	{path: "/api/v1/persistentvolumes", without: "volumes of pods"},
	{path: "/apis/policy/v1/poddisruptionbudgets", without: "which evictions PodDisruptionBudgets forbid"},
	{path: "/apis/storage.k8s.io/v1/storageclasses", without: "volumes of pods"},
	{path: "/apis/storage.k8s.io/v1/csinodes", without: "how many volumes can be attached to nodes"},
	{path: "/apis/storage.k8s.io/v1/csidrivers", without: "which drivers publish storage capacity"},
	{path: "/apis/storage.k8s.io/v1/csistoragecapacities", without: "storage capacity"},
	{path: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", without: "gangs"},
}

// Paths returns the paths of all lists that Read asks for.
func Paths() []string {
	out := make([]string, 0, len(resources))
	for _, res := range resources {
		out = append(out, res.path)
	}
	return out
}

// Snapshot is what the API server answered.
type Snapshot struct {
	Listings []manifest.Listing
	// Unread are the resources that the user may not list, such as persistentvolumes.
	Unread []string
	// Warnings name what could not be read, and what isn't known therefore.
	Warnings []string
}

// Reader reads one cluster.
type Reader struct{ rest rest.Interface }

// New returns a reader. It sends no request yet.
func New(c *rest.Config) (*Reader, error) {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = 50, 100 // two dozen requests in a row, and one for each 500 objects
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &Reader{client.Discovery().RESTClient()}, nil
}

// atOnce is how many kinds are listed at the same time: a large list takes the API server a second, and most are small.
const atOnce = 6

// Read lists everything that influences plans. Kinds that the cluster doesn't have are left out. What the user may not list is a warning, one for all
// kinds, unless nothing can be said without it: then it is an error, one for all of these.
func (r *Reader) Read(ctx context.Context) (*Snapshot, error) {
	parts := make([]struct {
		Snapshot
		forbidden bool
	}, len(resources))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, res := range resources {
		group.Go(func() error {
			err := r.list(ctx, &parts[i].Snapshot, res.path, res.selector)
			switch {
			case err == nil || apierrors.IsNotFound(err):
			case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) && res.without != "":
				parts[i].forbidden = r.exists(ctx, res.path)
			default:
				return fmt.Errorf("listing %s: %s", name(res.path), reason(err))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := &Snapshot{}
	var needed, lost []string
	for i, res := range resources {
		switch out.Listings = append(out.Listings, parts[i].Listings...); {
		case !parts[i].forbidden:
		case res.without == "":
			needed = append(needed, name(res.path))
		default:
			out.Unread = append(out.Unread, name(res.path))
			lost = append(lost, fmt.Sprintf("%s (%s)", name(res.path), res.without))
		}
	}
	if len(needed) > 0 {
		return nil, fmt.Errorf("listing %s: you may not list them, and nothing can be said without them; a ClusterRole that allows it: docs/why.md", strings.Join(needed, ", "))
	}
	if len(lost) > 0 {
		out.Warnings = append(out.Warnings, "you may not list these, so that what is in brackets isn't known: "+strings.Join(lost, ", "))
	}
	return out, nil
}

// exists reports whether the API server has a resource, which it doesn't say to users who may not list it. Without an answer it counts as there.
func (r *Reader) exists(ctx context.Context, path string) bool {
	if strings.HasPrefix(path, "/api/v1/") {
		return true
	}
	group, resource := path[:strings.LastIndex(path, "/")], name(path)
	raw, err := r.rest.Get().AbsPath(group).Do(ctx).Raw()
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	var list metav1.APIResourceList
	return json.Unmarshal(raw, &list) != nil || slices.ContainsFunc(list.APIResources, func(known metav1.APIResource) bool { return known.Name == resource })
}

// Paused lists what may have the condition objects.ConditionLaunchesPaused. Kinds that the cluster doesn't have are left out; those that the user may not
// list are a warning.
func (r *Reader) Paused(ctx context.Context) (*Snapshot, error) {
	out := &Snapshot{}
	for _, k := range RetriedKinds {
		if k.Namespaced {
			continue
		}
		switch err := r.list(ctx, out, k.prefix+"/"+k.Resource, ""); {
		case err == nil || apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			out.Warnings = append(out.Warnings, fmt.Sprintf("listing %s: %s", k.Resource, reason(err)))
		default:
			return nil, fmt.Errorf("listing %s: %w", k.Resource, err)
		}
	}
	return out, nil
}

// Events adds the events about an object, or, without its name, about all objects of the kind; namespace is empty for an object of the whole
// cluster. Those that the user may not read are a warning.
func (r *Reader) Events(ctx context.Context, into *Snapshot, namespace, kind, object string) {
	path := "/api/v1/events"
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/events"
	}
	selector := "involvedObject.kind=" + kind
	if object != "" {
		selector += ",involvedObject.name=" + object
	}
	if err := r.list(ctx, into, path, selector); err != nil {
		of := kind + "s"
		if object != "" {
			of = kind + " " + object
		}
		into.Warnings = append(into.Warnings, fmt.Sprintf("events of %s can't be read: %s", of, reason(err)))
	}
}

// SchedulerConfig returns the configuration that the chart installs, from the ConfigMap of that name; empty: there is none, or the user may
// not read it.
func (r *Reader) SchedulerConfig(ctx context.Context) string {
	var list struct {
		Items []struct {
			Data map[string]string `json:"data"`
		} `json:"items"`
	}
	raw, err := r.rest.Get().AbsPath("/api/v1/configmaps").Param("labelSelector", schedulerLabel).Do(ctx).Raw()
	if apierrors.IsForbidden(err) { // a right for one namespace may do
		raw, err = r.rest.Get().AbsPath("/api/v1/namespaces/"+metav1.NamespaceSystem+"/configmaps").Param("labelSelector", schedulerLabel).Do(ctx).Raw()
	}
	if err != nil || json.Unmarshal(raw, &list) != nil {
		return ""
	}
	for _, item := range list.Items {
		if text := item.Data[schedulerKey]; text != "" {
			return text
		}
	}
	return ""
}

// The ConfigMap of the chart and of the plain manifests.
const (
	schedulerLabel = "app.kubernetes.io/name=dovetail-scheduler"
	schedulerKey   = "scheduler-config.yaml"
)

// list adds all pages of a list.
func (r *Reader) list(ctx context.Context, into *Snapshot, path, selector string) error {
	next := ""
	for {
		request := r.rest.Get().AbsPath(path).Param("limit", pageSize)
		if selector != "" {
			request = request.Param("fieldSelector", selector)
		}
		if next != "" {
			request = request.Param("continue", next)
		}
		raw, err := request.Do(ctx).Raw()
		if err != nil {
			return err
		}
		var head struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return fmt.Errorf("the answer is no list: %w", err)
		}
		into.Listings = append(into.Listings, manifest.Listing{Name: name(path), JSON: raw})
		if next = head.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// name returns the resource at the end of a path.
func name(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// reason returns a short form of an API error.
func reason(err error) string {
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Code == http.StatusForbidden {
		return "you may not list them"
	}
	return err.Error()
}
