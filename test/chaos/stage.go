package chaos

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// look is how often a scene's checks run while time passes: the product's own steps are finer, but checks needn't be.
const look = 10 * time.Second

// World is what differs in a scene's cluster from the default.
type World struct {
	// Boot times of instances; by default all boot alike, within a minute.
	Boot kubelet.Boot
	// Fate returns what happens to an instance that differs from the others.
	Fate func(ec2.Machine) kubelet.Fate
	// Cloud changes the simulator's configuration.
	Cloud func(*ec2.Config)
	// Plain: leases and node statuses are written as often as in reality. Scenes don't need that as a rule, and it is most of the work
	// of simulating an idle day.
	Plain bool
}

// LongestBoot is the longest time from an instance's launch to its devices, unless the scene sets another.
const LongestBoot = 75 * time.Second

func (w World) setting(seed uint64) setting {
	s := setting{seed: seed, boot: w.Boot, fleet: time.Second, monitor: time.Minute, patience: 15 * time.Minute}
	if s.boot == (kubelet.Boot{}) {
		s.boot = kubelet.Boot{Median: 30 * time.Second, P95: 36 * time.Second}
	}
	s.cloud = func(c *ec2.Config) {
		c.Catalog = catalog.Builtin().Families("c6i", "m6i", "r6i", "g4dn") // a day's refreshes of all other families cost as much as everything else
		if w.Cloud != nil {
			w.Cloud(c)
		}
	}
	s.kubelets = func(c *kubelet.Config) {
		c.Fate = w.Fate
		if !w.Plain {
			c.LeaseInterval, c.StatusInterval = 5*time.Minute, time.Hour
		}
	}
	if w.Plain {
		s.monitor, s.patience = 5*time.Second, 50*time.Second
	}
	return s
}

// Stage is a running scene: its cluster, the product in it, and the notes.
type Stage struct {
	*world
	scene    Scene
	logger   klog.Logger
	report   *SceneReport
	watchdog *watchdog

	running, dying []*process
	starts         int
	agenda         []task
	each           []func()
	seen           *reader
	limit          int // of instances; 0: none
	deadly         func(*kubeapi.Call) bool
	kills          atomic.Int64
	emptied        *emptyings
	mortal         *mortal
}

// prepare creates what every cluster has and starts Kubernetes' controllers.
func (s *Stage) prepare() error {
	s.api.Admit(admission())
	for _, name := range []string{namespace, metav1.NamespaceSystem, corev1.NamespaceNodeLease} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		if err := s.objects.Create(s.ctx, ns); err != nil {
			return err
		}
	}
	return s.manageWorkloads()
}

// Now returns how much time has passed.
func (s *Stage) Now() time.Duration { return time.Since(begin).Round(time.Second) }

// Start starts the product.
func (s *Stage) Start() {
	s.starts++
	p := newProcess(s.starts, s.scene.Seed, s.api)
	if s.emptied != nil {
		s.emptied.starts(s.starts)
	}
	p.cloud = &wire{handler: s.ec2.Handler()}
	p.cloud.before = func(action string) bool { return s.cloudKills(p, point{action, false}) }
	p.cloud.after = func(action string) bool { return s.cloudKills(p, point{action, true}) }
	p.kube.Before = func(c *kubeapi.Call) *kubeapi.Fault { return s.before(p, c) }
	p.kube.After = func(c *kubeapi.Call, err error) *kubeapi.Fault { return s.after(p, c, err) }
	p.run(s.scene.Program, s.logger)
	s.running = append(s.running, p)
}

// Kill ends the product as SIGKILL would.
func (s *Stage) Kill() {
	for _, p := range s.running {
		p.kill()
	}
	s.dying, s.running = append(s.dying, s.running...), nil
}

// Pass lets time pass. What was planned for that time happens, and the functions of Each are called.
func (s *Stage) Pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		next := min(look, time.Until(end))
		if len(s.agenda) > 0 {
			next = min(next, max(0, time.Until(s.agenda[0].at)))
		}
		time.Sleep(next)
		s.watchdog.stepped()
		synctest.Wait()
		for len(s.agenda) > 0 && !time.Now().Before(s.agenda[0].at) {
			t := s.agenda[0]
			s.agenda = s.agenda[1:]
			t.do()
		}
		for _, p := range s.running {
			if p.killed.Load() {
				s.Kill()
				s.In(5*time.Second, s.Start)
				break
			}
			select {
			case err := <-p.ended:
				p.stop()
				s.running = nil
				panic(enough{"the program ended by itself: " + errText(err)})
			default:
			}
		}
		for _, f := range s.each {
			f()
		}
		if n := s.Launched(); s.limit > 0 && n > s.limit {
			panic(enough{fmt.Sprintf("%d machines bought: there is no end to it", n)})
		}
	}
}

func errText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// Until lets time pass until why returns "", and returns how long that took; it is a failure if it takes longer than most. why
// describes what is still missing.
func (s *Stage) Until(what string, most time.Duration, why func() string) time.Duration {
	begun := time.Now()
	missing := why()
	for ; missing != ""; missing = why() {
		if time.Since(begun) >= most {
			s.Failf("not within %s: %s: %s", most, what, missing)
			return time.Since(begun)
		}
		s.Pass(min(look, most-time.Since(begun)))
	}
	s.Note("%s, after %s", what, time.Since(begun).Round(time.Second))
	return time.Since(begun)
}

// In plans something for later.
func (s *Stage) In(d time.Duration, do func()) {
	s.agenda = append(s.agenda, task{time.Now().Add(d), do})
	slices.SortStableFunc(s.agenda, func(a, b task) int { return a.at.Compare(b.at) })
}

// Limit ends the scene, as failed, when more instances are launched than this: simulating a whole day of launches takes long and shows
// no more.
func (s *Stage) Limit(machines int) { s.limit = machines }

// Each registers a function that is called at every look.
func (s *Stage) Each(do func()) { s.each = append(s.each, do) }

// Create creates objects.
func (s *Stage) Create(objects ...client.Object) {
	for _, o := range objects {
		if err := s.objects.Create(s.ctx, o); err != nil {
			panic(enough{"creating " + o.GetName() + ": " + err.Error()})
		}
	}
}

// Zone returns the name of a zone, by number.
func (s *Stage) Zone(i int) string { return s.ec2.Zones()[i] }

// Read reads an object again.
func Read[T client.Object](s *Stage, o T) {
	if err := s.objects.Get(s.ctx, keyOf(o), o); err != nil {
		panic(enough{"reading " + o.GetName() + ": " + err.Error()})
	}
}

// Change reads an object, changes it and writes it, again if there was a conflict.
func Change[T client.Object](s *Stage, o T, change func(T)) {
	for range 100 {
		if err := s.objects.Get(s.ctx, keyOf(o), o); err != nil {
			panic(enough{"reading " + o.GetName() + ": " + err.Error()})
		}
		change(o)
		if s.objects.Update(s.ctx, o) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic(enough{"changing " + o.GetName() + ": somebody is always faster"})
}

// Delete deletes objects.
func (s *Stage) Delete(objects ...client.Object) {
	for _, o := range objects {
		if err := client.IgnoreNotFound(s.objects.Delete(s.ctx, o)); err != nil {
			panic(enough{"deleting " + o.GetName() + ": " + err.Error()})
		}
	}
}
