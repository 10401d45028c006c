package livecluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Retried is a kind of object on which the guard looks for objects.AnnotationRetry.
type Retried struct {
	Kind       string
	Resource   string // plural, as in paths
	prefix     string // of the path
	Namespaced bool
}

// RetriedKinds are these kinds.
var RetriedKinds = []Retried{
	{"NodePool", "nodepools", "/apis/karpenter.sh/v1", false},
	{"EC2NodeClass", "ec2nodeclasses", "/apis/karpenter.k8s.aws/v1", false},
	{"Provisioner", "provisioners", "/apis/karpenter.sh/v1alpha5", false},
	{"Deployment", "deployments", "/apis/apps/v1", true},
	{"ReplicaSet", "replicasets", "/apis/apps/v1", true},
	{"StatefulSet", "statefulsets", "/apis/apps/v1", true},
	{"Job", "jobs", "/apis/batch/v1", true},
}

// Retry sets objects.AnnotationRetry to the time, and returns the value that the object has now and the one that it had. dryRun: the API
// server checks the change and doesn't keep it.
func (r *Reader) Retry(ctx context.Context, k Retried, namespace, object string, now time.Time, dryRun bool) (value, before string, err error) {
	path := k.prefix
	if k.Namespaced {
		path += "/namespaces/" + namespace
	}
	path += "/" + k.Resource + "/" + object
	raw, err := r.rest.Get().AbsPath(path).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return "", "", errors.New("there is none of that name")
	}
	if apierrors.IsForbidden(err) {
		return "", "", errors.New("you may not get it")
	}
	if err != nil {
		return "", "", err
	}
	if before, err = retryOf(raw); err != nil {
		return "", "", err
	}
	// Two calls within a second would else set the same value, which asks for nothing.
	value = now.UTC().Format(time.RFC3339Nano)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{objects.AnnotationRetry: value}}})
	if err != nil {
		return "", "", err
	}
	request := r.rest.Patch(types.MergePatchType).AbsPath(path).Param("fieldManager", "dovetail").Body(patch)
	if dryRun {
		request = request.Param("dryRun", "All")
	}
	raw, err = request.Do(ctx).Raw()
	if apierrors.IsForbidden(err) {
		return "", "", errors.New("you may not patch it")
	}
	if err != nil {
		return "", "", err
	}
	if value, err = retryOf(raw); err == nil && value == before {
		err = fmt.Errorf("metadata.annotations: %s still has the value %q: something else wrote it", objects.AnnotationRetry, before)
	}
	return value, before, err
}

func retryOf(raw []byte) (string, error) {
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(raw, &object)
	return object.Metadata.Annotations[objects.AnnotationRetry], err
}
