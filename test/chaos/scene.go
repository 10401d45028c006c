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

// Scene is a world written by hand and what happens in it, in place of one that is drawn.
type Scene struct {
	Seed    uint64
	Program Program
	// World is what differs from the usual: every part of it may be left out.
	World World
	// Play lets it happen. It runs in the bubble: time passes by Stage.Pass only.
	Play func(*Stage)
}

// SceneReport is what became of a scene.
type SceneReport struct {
	// Failures are the judgements that failed, and what kept the scene from being played to its end.
	Failures []string
	// Note is what was done and seen, in order. Bill is what EC2 takes for it.
	Note []string
	// Launches of instances, and how much time passed.
	Launches int
	Passed   time.Duration
}

// RunScene runs a scene in a bubble of its own.
func RunScene(t *testing.T, scheme *runtime.Scheme, scene Scene, log io.Writer) *SceneReport {
	t.Helper()
	var logger klog.Logger // says nothing
	if log != nil {
		logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(4)))
	}
	report := &SceneReport{}
	synctest.Test(t, func(t *testing.T) { play(scheme, scene, logger, report) })
	return report
}

func play(scheme *runtime.Scheme, scene Scene, logger klog.Logger, report *SceneReport) {
	time.Sleep(time.Until(begin))
	s := &Stage{scene: scene, logger: logger, report: report}
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
	time.Sleep(time.Minute) // what looks for its end now and then finds it
}

// enough is how a scene ends that can't go on.
type enough struct{ why string }

// perform plays the scene until its end or until it can't go on.
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

// Failf notes that a judgement failed. The scene goes on.
func (s *Stage) Failf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.report.Failures = append(s.report.Failures, fmt.Sprintf("after %s: %s", s.Now(), text))
	s.Note("FAILED: %s", text)
}

// Note notes what happens.
func (s *Stage) Note(format string, args ...any) {
	s.report.Note = append(s.report.Note, fmt.Sprintf("%9s %s", s.Now(), fmt.Sprintf(format, args...)))
}
