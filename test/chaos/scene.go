package chaos

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// Scene is a scripted test: its cluster and what happens in it are written by hand, instead of being drawn at random.
type Scene struct {
	Seed    uint64
	Program Program
	// World is what differs from the default; all its fields are optional.
	World World
	// Play runs the scene. It runs in the bubble: only Stage.Pass lets time pass.
	Play func(*Stage)
}

// SceneReport is the result of a scene.
type SceneReport struct {
	// Failures are the checks that failed, and what kept the scene from running to its end.
	Failures []string
	// Note is what was done and seen, in order. Bill is EC2's price for it.
	Note []string
	// Launches of instances, and how much time passed.
	Launches int
	Passed   time.Duration
}

// RunScene runs a scene in a bubble of its own.
func RunScene(t *testing.T, scheme *runtime.Scheme, scene Scene, log io.Writer) *SceneReport {
	t.Helper()
	var logger klog.Logger // discards everything
	if log != nil {
		logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(4)))
	}
	report := &SceneReport{}
	watchdog, end := watchOver(fmt.Sprintf("chaos: the scene of %s, seed %d,", t.Name(), scene.Seed))
	defer end()
	synctest.Test(t, func(t *testing.T) { play(scheme, scene, logger, report, watchdog) })
	return report
}

func play(scheme *runtime.Scheme, scene Scene, logger klog.Logger, report *SceneReport, watchdog *watchdog) {
	watchdog.entered()
	time.Sleep(time.Until(begin))
	s := &Stage{scene: scene, logger: logger, report: report, watchdog: watchdog}
	w, err := newWorld(scheme, scene.World.setting(scene.Seed), func(string) {})
	if err != nil {
		report.Failures = append(report.Failures, err.Error())
	} else {
		s.world = w
		if err := s.prepare(); err != nil {
			s.Failf("%v", err)
		} else {
			s.perform()
		}
		for _, p := range append(s.running, s.dying...) {
			p.kill()
			if err := p.gone(); err != nil {
				s.Failf("%v", err)
			}
		}
		report.Launches, report.Passed = s.Launched(), time.Since(begin)
	}
	if w != nil {
		w.close()
	}
	time.Sleep(time.Minute) // lets goroutines end that check for their end now and then
}

// enough is the panic value with which a scene ends that can't continue.
type enough struct{ why string }

// perform runs the scene until its end or until it can't continue.
func (s *Stage) perform() {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case enough:
			s.Failf("%s", p.why)
		default:
			panic(p)
		}
	}()
	s.scene.Play(s)
}

// Failf records that a check failed. The scene continues.
func (s *Stage) Failf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.report.Failures = append(s.report.Failures, fmt.Sprintf("after %s: %s", s.Now(), text))
	s.Note("FAILED: %s", text)
}

// Note records what happens.
func (s *Stage) Note(format string, args ...any) {
	s.report.Note = append(s.report.Note, fmt.Sprintf("%9s %s", s.Now(), fmt.Sprintf(format, args...)))
}
