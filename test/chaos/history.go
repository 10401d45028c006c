package chaos

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// step is the time between two inspections by the checker.
	step = time.Second
	// storm is the shortest and longest time for which things go wrong.
	stormMin, stormMax = 10 * time.Minute, 25 * time.Minute
	// settleTime is how long it may take afterwards until everything is consistent: longer than any deadline of the product. A node
	// that never registers takes one of them; all that boot after the faults have stopped register.
	settleTime = 45 * time.Minute
	// pauseTime is added to that if launches were paused because probes failed: the length of the third pause after instances that never
	// registered. Before the first probe it is as long as the product says that this one waits.
	pauseTime = time.Hour
	// steady is how long everything must then stay consistent.
	steady = time.Minute
)

// Report is the result of a history.
type Report struct {
	Seed       uint64
	Violations []string
	// Faults injected, by kind.
	Faults map[string]int
	// Passed are the points at which processes can be killed, and how often they were passed.
	Passed map[string]int
	// Steps that the checker inspected, Launches of instances, Pods that were created, and Settled: the time until everything was
	// consistent after the faults had stopped.
	Steps, Launches, Pods int
	Settled               time.Duration
	// Checks that were made, by rule.
	Checks map[string]int
	// Note is what was done, in order.
	Note []string
}

// history is one seed while it runs.
type history struct {
	*world
	seed     uint64
	longer   time.Duration // after the storm, while its lasting faults go on
	logger   klog.Logger   // of the product
	program  Program
	faults   *faults
	lasting  *lasting
	check    *checker
	watchdog *watchdog
	// consolidating is what differs if the pool consolidates.
	consolidating *consolidating
	editing       *editing
	extras        *extras
	apps          []*app
	daemons       *appsv1.DaemonSet

	running []*process
	starts  int
	restart time.Time // when the next process starts; zero: none is needed
	agenda  []task
	dying   []*process

	mu     sync.Mutex // guards felled: kills are made by the processes' own goroutines
	felled []felled
	scenes []string
}

type felled struct {
	p  *process
	at point
}

type task struct {
	at time.Time
	do func()
}

// Run runs the history of a seed in a bubble of its own. Its lasting faults end longer after all others. The scheme contains the kinds that the API server knows. The product's log
// goes to log, if that isn't nil.
func Run(t *testing.T, scheme *runtime.Scheme, seed uint64, longer time.Duration, program Program, log io.Writer) *Report {
	t.Helper()
	var logger klog.Logger // discards everything
	if log != nil {
		logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(4)))
	}
	var out *Report
	watchdog, end := watchOver(fmt.Sprint("chaos: the history of seed ", seed))
	defer end()
	synctest.Test(t, func(t *testing.T) { out = run(scheme, seed, longer, program, logger, watchdog) })
	return out
}

func run(scheme *runtime.Scheme, seed uint64, longer time.Duration, program Program, logger klog.Logger, watchdog *watchdog) *Report {
	watchdog.entered()
	time.Sleep(time.Until(begin))
	r := rand.New(rand.NewPCG(seed, 1))
	h := &history{seed: seed, longer: longer, logger: logger, program: program, check: newChecker(), watchdog: watchdog}
	h.faults = newFaults(h, rand.New(rand.NewPCG(seed, 2)))
	h.lasting = drawLasting(rand.New(rand.NewPCG(seed, 3)))
	h.check.lasting = h.lasting
	h.consolidating = drawConsolidating(rand.New(rand.NewPCG(seed, 4)))
	h.lasting.after += h.consolidating.wait()
	h.editing = drawEditing(rand.New(rand.NewPCG(seed, 5)))
	h.extras = drawExtras(rand.New(rand.NewPCG(seed, 6)))
	h.check.extras = h.extras
	report := &Report{Seed: seed}
	var err error
	if h.world, err = newWorld(scheme, h.lasting.shape(drawn(seed, r), h.faults), h.check.cloudEnds); err == nil {
		err = h.live(r, report)
	}
	if err != nil {
		report.Violations = append(report.Violations, err.Error())
	}
	for _, p := range append(h.running, h.dying...) {
		p.kill()
		if err := p.gone(); err != nil {
			report.Violations = append(report.Violations, err.Error())
		}
	}
	if h.world != nil {
		h.world.close()
		report.Launches = len(h.ec2.Instances())
		if h.lag > 0 {
			h.faults.add("EC2: instance described late", report.Launches)
		}
	}
	h.check.emptied.counts(h.check.made)
	report.Faults, report.Steps, report.Checks, report.Note = h.faults.counted(), h.check.steps, h.check.made, h.scenes
	for _, a := range h.apps {
		report.Pods += a.next
	}
	report.Passed = h.faults.passages()
	time.Sleep(time.Minute) // lets goroutines end that check for their end now and then
	return report
}

// live runs a history:
//
//  1. The user's objects are created; then the product starts.
//  2. The storm: actions every few seconds, faults in all connections, kills at points.
//  3. Calm: all faults end, a process runs. Within the settle time everything must be consistent, and stay so.
//
// The checker inspects every step. The first violation ends the history.
func (h *history) live(r *rand.Rand, report *Report) error {
	h.check.emptied = newEmptyings(h.api, h.ec2, h.check.late)
	h.apps = h.consolidating.grow(makeApps(r, h.lasting))
	h.daemons = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: daemon}}
	h.daemons.Spec.Template.Spec = daemonTemplate()
	h.daemons.Spec.Template.Labels = map[string]string{appLabel: daemon}
	if err := h.objects.Create(h.ctx, h.daemons); err != nil {
		return fmt.Errorf("creating the DaemonSet: %w", err)
	}
	if err := h.plant(r); err != nil {
		return err
	}
	h.ec2.Before("", h.faults.beforeEC2)
	h.prepare()
	if err := h.prepareConsolidation(); err != nil {
		return err
	}
	h.prepareEdits(h.consolidating.wait())
	if err := h.prepareExtras(h.consolidating.wait()); err != nil {
		return err
	}
	h.running = []*process{h.start()}
	for old := time.Now().Add(h.consolidating.wait()); time.Now().Before(old); {
		if err := h.step(r); err != nil {
			return err
		}
	}

	storm := stormMin + time.Duration(r.Int64N(int64(stormMax-stormMin)))
	end := time.Now().Add(storm)
	next := time.Now().Add(time.Minute)
	for time.Now().Before(end) {
		if !time.Now().Before(next) {
			h.act(r)
			next = time.Now().Add(time.Duration(5+r.IntN(40)) * time.Second)
		}
		if err := h.step(r); err != nil {
			return err
		}
	}

	h.faults.quiet()
	h.boots.Heal()
	if h.longer > 0 {
		h.check.onlyLasting = time.Now()
	}
	for end = time.Now().Add(h.longer); time.Now().Before(end); {
		if err := h.step(r); err != nil {
			return err
		}
	}
	h.note("calm")
	h.mend()
	for _, t := range h.agenda {
		t.do()
	}
	h.agenda = nil
	if len(h.running) == 0 && h.restart.IsZero() {
		h.restart = time.Now()
	}
	calm := time.Now()
	var agreed time.Time
	why, last := "", ""
	h.check.buffered = len(h.buffers()) > 0
	for time.Since(calm) < h.check.patience() {
		if err := h.step(r); err != nil {
			return err
		}
		h.giveIn()
		if why = cmp.Or(h.check.disagreement(h.apps), h.unfilled()); why != "" {
			agreed, last = time.Time{}, fmt.Sprintf("%v after that: %s", time.Since(calm), why)
			continue
		}
		if agreed.IsZero() {
			agreed = time.Now()
		}
		if time.Since(agreed) >= steady && h.dropBuffers() {
			agreed = time.Time{} // now nobody needs their nodes
			continue
		}
		if time.Since(agreed) >= steady {
			report.Settled = agreed.Sub(calm)
			return nil
		}
	}
	return fmt.Errorf("not settled %s after the faults had stopped; last, %s", h.check.patience(), last)
}

// step lets one step of time pass and checks the result.
func (h *history) step(r *rand.Rand) error {
	time.Sleep(step)
	h.watchdog.stepped()
	synctest.Wait()
	h.mu.Lock()
	felled := h.felled
	h.felled = nil
	h.mu.Unlock()
	for _, f := range felled {
		h.note("process %d is killed %s", f.p.number, f.at)
		h.killed(f.p)
	}
	for len(h.agenda) > 0 && !time.Now().Before(h.agenda[0].at) {
		t := h.agenda[0]
		h.agenda = h.agenda[1:]
		t.do()
	}
	if len(h.running) == 0 && h.restart.IsZero() {
		h.restart = time.Now().Add(time.Duration(r.Int64N(int64(2 * time.Minute))))
	}
	if !h.restart.IsZero() && !time.Now().Before(h.restart) {
		h.restart = time.Time{}
		h.running = append(h.running, h.start())
	}
	for _, p := range h.running {
		select {
		case err := <-p.ended:
			return fmt.Errorf("process %d ended by itself: %v", p.number, err)
		default:
		}
	}
	if err := h.keep(h.ctx); err != nil {
		return err
	}
	return h.check.look(h.api, h.ec2, len(h.running), h.faults.slowest())
}

// kill kills a process at a point. It is called from the process's own call.
func (h *history) kill(p *process, at point) {
	p.kill()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.felled = append(h.felled, felled{p, at})
}

// killed kills a running process.
func (h *history) killed(p *process) {
	if slices.Contains(h.running, p) {
		p.kill()
		h.retire(p)
	}
}

// retire stops a process, removes it from the list of running ones, and waits for its end at the end of the history. Calls in progress
// may still have their effect while a successor starts.
func (h *history) retire(p *process) {
	p.killed.Store(true)
	p.stop()
	h.running = slices.DeleteFunc(slices.Clone(h.running), func(q *process) bool { return q == p })
	h.dying = append(h.dying, p)
}

// later plans something.
func (h *history) later(d time.Duration, do func()) {
	h.agenda = append(h.agenda, task{time.Now().Add(d), do})
	slices.SortStableFunc(h.agenda, func(a, b task) int { return a.at.Compare(b.at) })
}

func (h *history) note(format string, args ...any) {
	h.scenes = append(h.scenes, fmt.Sprintf("%8.1fs %s", time.Since(begin).Seconds(), fmt.Sprintf(format, args...)))
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
