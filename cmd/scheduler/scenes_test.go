package main

import (
	"flag"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

var (
	wholeScenes = flag.Bool("scenes.whole", false, "faults last a day, not four hours, and the long scenes are played, too")
	sceneLogs   = flag.String("scenes.logs", "", "folder for the product's logs, one file per scene")
)

// whole returns n, or fewer without -scenes.whole.
func whole[T any](n, fewer T) T {
	if *wholeScenes {
		return n
	}
	return fewer
}

// prepare discards what isn't logged through a context, and makes garbage collection rare: a day makes much garbage, and little of it
// lives.
var prepare = sync.OnceFunc(func() {
	silence()
	debug.SetGCPercent(400)
})

// play runs a scene around the whole scheduler.
func play(t *testing.T, scene chaos.Scene) {
	t.Helper()
	t.Parallel()
	prepare()
	if scene.Program == nil {
		scene.Program = hosted
	}
	var report *chaos.SceneReport
	if *sceneLogs == "" {
		report = chaos.RunScene(t, cluster.Scheme, scene, nil)
	} else {
		f, err := os.Create(filepath.Join(*sceneLogs, strings.ReplaceAll(t.Name(), "/", "_")+".log"))
		if err != nil {
			t.Fatal(err)
		}
		report = chaos.RunScene(t, cluster.Scheme, scene, f)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%s, %d machines bought\n%s", report.Passed, report.Launches, strings.Join(report.Note, "\n"))
	if len(report.Failures) > 0 {
		t.Errorf("failed:\n%s", strings.Join(report.Failures, "\n"))
	}
}
