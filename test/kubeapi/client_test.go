package kubeapi

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// bubble runs f with an API server, a connection to it and a client that uses the connection, under virtual time.
func bubble(t *testing.T, f func(t *testing.T, api *Server, c *Client, kube kubernetes.Interface)) {
	synctest.Test(t, func(t *testing.T) {
		api := New(scheme.Scheme, clock.RealClock{})
		c := api.Client()
		f(t, api, c, kubernetes.NewForConfigOrDie(c.Config()))
	})
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Five random digits are drawn twice among some thousand names.
func TestGeneratedNamesAreDrawnAgain(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Server, _ *Client, kube kubernetes.Interface) {
		for range 5000 {
			if _, err := kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after *Fault
		happened      bool
		took          time.Duration
		check         func(error) bool
	}{
		{name: "none", happened: true, check: func(err error) bool { return err == nil }},
		{name: "an error", before: &Fault{Delay: time.Second, Err: apierrors.NewServiceUnavailable("no")}, took: time.Second, check: apierrors.IsServiceUnavailable},
		{name: "it never arrived", before: &Fault{Drop: true}, check: func(err error) bool { return errors.Is(err, errCut) }},
		{name: "the answer is lost", after: &Fault{Drop: true}, happened: true, check: func(err error) bool { return errors.Is(err, errCut) }},
		{name: "the answer never comes", after: &Fault{Hang: time.Minute}, happened: true, took: time.Minute, check: func(err error) bool { return err != nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, api *Server, c *Client, kube kubernetes.Interface) {
				c.Before = func(*Call) *Fault { return tc.before }
				c.After = func(*Call, error) *Fault { return tc.after }
				begin := time.Now()
				_, err := kube.CoreV1().Nodes().Create(t.Context(), node("a"), metav1.CreateOptions{})
				if !tc.check(err) {
					t.Errorf("error %v", err)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if _, there := api.table(nodeResource).objects["/a"]; there != tc.happened {
					t.Errorf("happened: %v", there)
				}
			})
		})
	}
}

// A killed process receives and sends nothing any more, and doesn't wait either: a call that would have hung for a minute is over.
func TestKillEndsCallsThatHang(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Server, c *Client, kube kubernetes.Interface) {
		c.After = func(*Call, error) *Fault { return &Fault{Hang: time.Minute} }
		begin := time.Now()
		time.AfterFunc(time.Second, c.Kill)
		_, err := kube.CoreV1().Nodes().Create(t.Context(), node("a"), metav1.CreateOptions{})
		if took := time.Since(begin); !errors.Is(err, errCut) || took != time.Second {
			t.Errorf("error %v after %s", err, took)
		}
	})
}

func TestKill(t *testing.T) {
	bubble(t, func(t *testing.T, api *Server, c *Client, kube kubernetes.Interface) {
		w, err := kube.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.Kill()
		if _, open := <-w.ResultChan(); open {
			t.Error("the watch goes on")
		}
		if _, err := kube.CoreV1().Nodes().Create(t.Context(), node("a"), metav1.CreateOptions{}); !errors.Is(err, errCut) {
			t.Errorf("error %v", err)
		}
		if len(api.table(nodeResource).watchers) > 0 {
			t.Error("the server remembers the watch")
		}
	})
}

func TestLag(t *testing.T) {
	bubble(t, func(t *testing.T, api *Server, c *Client, kube kubernetes.Interface) {
		lags := []time.Duration{5 * time.Second, 0}
		c.Lag = func() time.Duration {
			d := lags[0]
			lags = lags[1:]
			return d
		}
		w, err := kube.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		begin := time.Now()
		for _, name := range []string{"a", "b"} {
			if _, err := kube.CoreV1().Nodes().Create(t.Context(), node(name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a", "b"} {
			if e := <-w.ResultChan(); e.Object.(*corev1.Node).Name != name || time.Since(begin) != 5*time.Second {
				t.Errorf("%v after %s, want %s: nothing overtakes what is late", e.Object, time.Since(begin), name)
			}
		}
	})
}

func TestExpire(t *testing.T) {
	bubble(t, func(t *testing.T, api *Server, c *Client, kube kubernetes.Interface) {
		old, err := kube.CoreV1().Nodes().Create(t.Context(), node("a"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kube.CoreV1().Nodes().Create(t.Context(), node("b"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		api.Expire()
		w, err := kube.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: old.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		e := <-w.ResultChan()
		if e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("%v", e)
		}
	})
}

// Without a disruption controller, the server counts what that would write into the status of a budget.
func TestEvictionsRespectBudgets(t *testing.T) {
	bubble(t, func(t *testing.T, api *Server, c *Client, kube kubernetes.Interface) {
		one := intstr.FromInt32(1)
		if _, err := kube.PolicyV1().PodDisruptionBudgets("d").Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "b"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pods := kube.CoreV1().Pods("d")
		for _, name := range []string{"1", "2", "3"} {
			p, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{NodeName: "n"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		evict := func(name string) error {
			return kube.PolicyV1().Evictions("d").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}})
		}
		if err := evict("1"); err != nil {
			t.Errorf("the first: %v", err)
		}
		if err := evict("2"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the second: %v", err)
		}
	})
}
