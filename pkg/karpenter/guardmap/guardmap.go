package guardmap

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Name is the name of the ConfigMap.
const Name = "dovetail-guard"

// Map reads and writes the ConfigMap. Safe for concurrent use.
type Map struct {
	client    kubernetes.Interface
	namespace string
	prefix    string
	writing   sync.Mutex // held during a request
	read      atomic.Bool
	texts     sync.Map // by owner, as last read or written
}

// New returns the records of the Dovetail with that name; empty: it has none. Each has keys of its own there.
func New(client kubernetes.Interface, namespace, managedBy string) *Map {
	m := &Map{client: client, namespace: namespace}
	if managedBy != "" {
		m.prefix = "by-" + managedBy + "."
	}
	return m
}

// Text returns the record of an owner as it was last read or written, from memory; known is false before the first Read.
func (m *Map) Text(o guard.Owner) (text string, known bool) {
	last, _ := m.texts.Load(o)
	text, _ = last.(string)
	return text, m.read.Load()
}

// Read returns all records by owner.
func (m *Map) Read(ctx context.Context) (map[guard.Owner]string, error) {
	out := map[guard.Owner]string{}
	cm, err := m.client.CoreV1().ConfigMaps(m.namespace).Get(ctx, Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		cm = &corev1.ConfigMap{}
	case apierrors.IsForbidden(err):
		// The installed RBAC role is of an older version and doesn't allow this. Only these records are affected: they begin empty in each process.
		klog.FromContext(ctx).Error(err, "The spending guard's records in the ConfigMap can't be read; apply the shipped RBAC")
		cm = &corev1.ConfigMap{}
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", m.namespace, Name, err)
	}
	for key, text := range cm.Data {
		key, ours := strings.CutPrefix(key, m.prefix)
		if !ours {
			continue
		}
		if name, ok := strings.CutPrefix(key, "pool."); ok {
			out[guard.Owner{Pool: name}] = text
		} else if name, ok := strings.CutPrefix(key, "class."); ok {
			out[guard.Owner{Class: name}] = text
		}
	}
	for o, text := range out {
		m.texts.Store(o, text)
	}
	m.read.Store(true)
	return out, nil
}

// Put writes the record of an owner; an empty text removes it.
func (m *Map) Put(ctx context.Context, o guard.Owner, text string) error {
	key := m.prefix + "class." + o.Class
	if o.Pool != "" {
		key = m.prefix + "pool." + o.Pool
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	maps := m.client.CoreV1().ConfigMaps(m.namespace)
	var value any
	if text != "" {
		value = text
	}
	raw, err := json.Marshal(map[string]any{"data": map[string]any{key: value}})
	if err != nil {
		return fmt.Errorf("keeping the spending guard's record: %w", err)
	}
	_, err = maps.Patch(ctx, Name, types.MergePatchType, raw, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) && text != "" {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: Name}, Data: map[string]string{key: text}}
		_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("keeping the spending guard's record in ConfigMap %s/%s: %w", m.namespace, Name, err)
	}
	m.texts.Store(o, text)
	return nil
}
