package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Call is a request in the form in which hooks see it.
type Call struct {
	Context              context.Context
	Verb                 string // get, list, watch, create, update, patch, delete, deletecollection
	Resource             schema.GroupVersionResource
	Namespace, Name, Sub string
	Body                 []byte
	kind                 schema.GroupVersionKind
	contentType          string
	list                 *metav1.ListOptions
	lag                  func() time.Duration
	dryRun               bool
}

func (c *Call) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Verb, strings.Trim(c.Resource.Resource+"/"+c.Sub, "/"), c.Namespace, c.Name))
}

// Writes reports whether the call changes something.
func (c *Call) Writes() bool { return c.Verb != "get" && c.Verb != "list" && c.Verb != "watch" }

// serve answers one request.
func (s *Server) serve(call *Call) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[call.Verb+" "+strings.Trim(call.Resource.Resource+"/"+call.Sub, "/")]++
	t := s.table(call.Resource.GroupResource())
	match, err := selectorOf(call.Namespace, call.list)
	if err != nil {
		return nil, err
	}
	switch call.Verb {
	case "watch":
		if call.Name != "" {
			return nil, apierrors.NewBadRequest("watching one object by path is not served")
		}
		return s.watch(t, call, match)
	case "list":
		items := []*object{}
		items = append(items, t.matching(match)...)
		return reply(http.StatusOK, map[string]any{
			"kind": call.kind.Kind + "List", "apiVersion": call.kind.GroupVersion().String(),
			"metadata": map[string]any{"resourceVersion": strconv.FormatUint(s.revision, 10)}, "items": items,
		})
	case "create":
		if call.Sub != "" {
			return s.subresource(t, call)
		}
		o, err := decode(call)
		if err != nil {
			return nil, err
		}
		made, err := s.create(t, call, o)
		if err != nil {
			return nil, err
		}
		return reply(http.StatusCreated, made)
	case "deletecollection":
		for _, o := range t.matching(match) {
			if _, err := s.remove(t, o, &metav1.DeleteOptions{}); err != nil {
				return nil, err
			}
		}
		return reply(http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	}
	current, err := t.get(call.Namespace, call.Name)
	if err != nil {
		return nil, err
	}
	switch call.Verb {
	case "get":
		return reply(http.StatusOK, current)
	case "delete":
		var o metav1.DeleteOptions
		if len(call.Body) > 0 {
			if err := json.Unmarshal(call.Body, &o); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		if call.dryRun {
			o.DryRun = []string{metav1.DryRunAll}
		}
		out, err := s.remove(t, current, &o)
		if err != nil {
			return nil, err
		}
		return reply(http.StatusOK, out)
	case "update", "patch":
		next, err := s.wanted(call, current)
		if err != nil {
			return nil, err
		}
		out, err := s.change(t, current, next, call.Sub, call.dryRun)
		if err != nil {
			return nil, err
		}
		return reply(http.StatusOK, out)
	}
	return nil, apierrors.NewMethodNotSupported(call.Resource.GroupResource(), call.Verb)
}

func (s *Server) subresource(t *table, call *Call) (*http.Response, error) {
	pod, err := t.get(call.Namespace, call.Name)
	if err != nil {
		return nil, err
	}
	switch call.Sub {
	case "binding":
		var b corev1.Binding
		if err := json.Unmarshal(call.Body, &b); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		err = s.bind(t, pod, &b)
	case "eviction":
		var e policyv1.Eviction
		if err := json.Unmarshal(call.Body, &e); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		err = s.evict(t, pod, &e)
	default:
		err = apierrors.NewMethodNotSupported(call.Resource.GroupResource(), call.Sub)
	}
	if err != nil {
		return nil, err
	}
	return reply(http.StatusCreated, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

func decode(call *Call) (*object, error) {
	o := &object{}
	if err := utiljson.Unmarshal(call.Body, &o.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.SetGroupVersionKind(call.kind)
	if call.Namespace != "" {
		o.SetNamespace(call.Namespace)
	}
	return o, nil
}

// wanted returns the object as an update or patch would make it.
func (s *Server) wanted(call *Call, current *object) (*object, error) {
	if call.Verb == "update" {
		return decode(call)
	}
	next := &object{}
	switch types.PatchType(call.contentType) {
	case types.StrategicMergePatchType:
		typed, err := s.scheme.New(call.kind)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		var patch map[string]any
		if err := utiljson.Unmarshal(call.Body, &patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if next.Object, err = strategicpatch.StrategicMergeMapPatch(current.DeepCopy().Object, patch, typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case types.MergePatchType:
		was, err := json.Marshal(current.Object)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		is, err := jsonpatch.MergePatch(was, call.Body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if err := utiljson.Unmarshal(is, &next.Object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", call.Resource.GroupResource(), call.Name, "patch type "+call.contentType, 0, false)
	}
	return next, nil
}

func reply(code int, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return response(code, data), nil
}

func response(code int, data []byte) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)), ContentLength: int64(len(data))}
}

// parse reads a request. ok is false for paths that are not resources.
func (s *Server) parse(r *http.Request) (call *Call, ok bool, err error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	call = &Call{Context: r.Context(), list: &metav1.ListOptions{}}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		call.Resource.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		call.Resource.Group, call.Resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, false, nil
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		call.Namespace, parts = parts[1], parts[2:]
	}
	call.Resource.Resource = parts[0]
	if len(parts) > 1 {
		call.Name = parts[1]
	}
	if len(parts) > 2 {
		call.Sub = parts[2]
	}
	if call.kind, ok = s.kinds[call.Resource]; !ok {
		return nil, false, apierrors.NewNotFound(call.Resource.GroupResource(), call.Name)
	}
	query := r.URL.Query()
	call.dryRun = query.Get("dryRun") == metav1.DryRunAll
	call.list.LabelSelector, call.list.FieldSelector, call.list.ResourceVersion = query.Get("labelSelector"), query.Get("fieldSelector"), query.Get("resourceVersion")
	if v := query.Get("timeoutSeconds"); v != "" {
		n, _ := strconv.ParseInt(v, 10, 64)
		call.list.TimeoutSeconds = &n
	}
	if v := query.Get("sendInitialEvents"); v != "" {
		yes := v == "true"
		call.list.SendInitialEvents = &yes
	}
	call.contentType, _, _ = strings.Cut(r.Header.Get("Content-Type"), ";")
	if r.Body != nil {
		if call.Body, err = io.ReadAll(r.Body); err != nil {
			return nil, false, err
		}
	}
	call.Verb = verb(r.Method, call.Name, query.Get("watch") == "true" || query.Get("watch") == "1")
	return call, true, nil
}

func verb(method, name string, watch bool) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	switch {
	case watch:
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}

// other answers paths that are not resources: the version, and empty discovery.
func other(path string) (*http.Response, error) {
	if path == "/version" {
		return reply(http.StatusOK, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.4"})
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, path)
}
