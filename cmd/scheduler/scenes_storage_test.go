package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// Volumes of a CSI driver whose capacity depends on the node: nothing is published about a node that doesn't exist yet.

// The driver publishes a node's storage half a minute after the node is Ready. Its pod waits for that, on the one node that is bought; so
// does a pod that is created meanwhile and fits there. For a pod that requests more than nodes publish, or than is left, what it needs is
// bought or nothing.
func TestSceneLocalStorage(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		s.LocalStorage("local", "25Gi", func(ready time.Duration) bool { return ready >= 30*time.Second })
		db := func(i int) string {
			app := fmt.Sprintf("db%d", i)
			s.Create(chaos.VolumeClaim(app, "local"), chaos.Deployment(1, chaos.Template(app, "100m", "128Mi", chaos.Mounting(app))))
			return app
		}
		want := map[string]int{db(0): 1}
		s.Start()
		s.Until("the machine is there", 5*time.Minute, func() string {
			if s.Ready() == 0 {
				return "it isn't"
			}
			return ""
		})
		s.Pass(15 * time.Second)
		want[db(1)] = 1
		s.Until("they run", 2*time.Minute, s.Running(want))
		s.Pass(10 * time.Minute)
		s.AtMost("machines for two pods", s.Launched(), 1)
		want[db(2)] = 1
		s.Until("the third runs", 5*time.Minute, s.Running(want))
		s.Pass(time.Hour)
		s.AtMost("machines", s.Launched(), 2)
	}})
}

// A pod that needs a node of its own is created when the first one of its type is Ready and has published nothing: it waits until that has,
// and then gets its node. The product is killed in between.
func TestSceneLocalStorageShownLate(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.Create(chaos.Class("default"), chaos.Pool("default", "default", corev1.LabelInstanceTypeStable+"=c6i.xlarge"))
		s.LocalStorage("local", "25Gi", func(ready time.Duration) bool { return ready >= time.Minute })
		db := func(app string) {
			s.Create(chaos.VolumeClaim(app, "local"), chaos.Deployment(1, chaos.Template(app, "3", "1Gi", chaos.Mounting(app))))
		}
		db("db0")
		s.Start()
		s.Until("the machine is there", 5*time.Minute, func() string {
			if s.Ready() == 0 {
				return "it isn't"
			}
			return ""
		})
		s.Pass(20 * time.Second)
		s.Kill()
		s.Start()
		s.Pass(10 * time.Second)
		db("db1")
		s.Until("they run", 5*time.Minute, s.Running(map[string]int{"db0": 1, "db1": 1}))
		s.Pass(time.Hour)
		s.AtMost("machines", s.Launched(), 2)
	}})
}

// The driver registers and never publishes anything: a node is tried, and again now and then, and when the driver is fixed the pod runs.
func TestSceneStorageNeverPublished(t *testing.T) {
	var f chaos.Fault
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		_, pool := basics(s)
		s.LocalStorage("local", "25Gi", func(time.Duration) bool { return !f.Lasts() })
		s.Create(chaos.VolumeClaim("db", "local"), chaos.Deployment(1, chaos.Template("db", "100m", "128Mi", chaos.Mounting("db"))))
		s.Limit(50)
		s.Start()
		s.Pass(day())
		bill(s)
		s.AtLeast("machines in the day", s.Launched(), 1)
		s.AtMost("machines in the day", s.Launched(), 9)
		f.Mend()
		chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
		s.Until("it runs", mended, s.Running(map[string]int{"db": 1}))
	}})
}

// A pod requests more than any node has. While a node exists that shows this, the pod is refused for that reason, and nothing is bought;
// otherwise one is tried now and then.
func TestSceneStorageTooSmall(t *testing.T) {
	for _, there := range []bool{true, false} {
		if !there && !*wholeScenes {
			continue // TestSceneStorageNeverPublished checks the same of the guard
		}
		t.Run(fmt.Sprintf("a node is there: %t", there), func(t *testing.T) {
			play(t, chaos.Scene{Play: func(s *chaos.Stage) {
				s.Create(chaos.Class("default"), chaos.Pool("default", "default", corev1.LabelInstanceTypeStable+"=c6i.xlarge"))
				s.LocalStorage("local", "5Gi", func(ready time.Duration) bool { return ready >= 30*time.Second })
				said := s.Listen()
				s.Limit(50)
				s.Start()
				if there {
					s.Create(chaos.Deployment(1, chaos.Template("web", "100m", "128Mi")))
					s.Until("the other pod runs", 5*time.Minute, s.Running(map[string]int{"web": 1}))
				}
				s.Pass(5 * time.Minute)
				s.Create(chaos.VolumeClaim("db", "local"), chaos.Deployment(1, chaos.Template("db", "100m", "128Mi", chaos.Mounting("db"))))
				s.Pass(day())
				bill(s)
				if !there {
					s.AtMost("machines in the day", s.Launched(), 9)
					return
				}
				s.AtMost("machines in the day", s.Launched(), 1)
				if !slices.ContainsFunc(said(), func(h chaos.Sentence) bool {
					return h.Kind == "Pod" && strings.Contains(h.Text, "storage of class local 10Gi requested, 5Gi at most")
				}) {
					s.Failf("no event says what nodes have: %v", said())
				}
			}})
		})
	}
}
