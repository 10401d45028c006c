package devices

import (
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// lesson is a Source with one shape, for tests of what nodes of one kind teach.
type lesson struct {
	*testing.T
	*Source
	shape string
}

func newLesson(t *testing.T) *lesson {
	s, c := newSource()
	return &lesson{t, s, key(t, s, c.pod("one", 1))}
}

func (l *lesson) pass(d time.Duration) {
	c := l.clock.(*clocktesting.FakePassiveClock)
	c.SetTime(c.Now().Add(d))
}

func (l *lesson) declare(annotation string) {
	l.Helper()
	if _, err := l.SetNodeClass("gpus", map[string]string{objects.AnnotationDevices: annotation}, false); err != nil {
		l.Fatal(err)
	}
}

// shows has a node of the kind, created at that time, publish devices.
func (l *lesson) shows(node string, at int64, devices ...string) {
	l.ClaimChanged(nodeClaim(node, "g5.xlarge", "ami", at), false)
	l.SliceChanged(publish(node, 0, 1, devices...), false)
}

func (l *lesson) expect(what string, want int64) {
	l.Helper()
	if got := l.Counts(l.Template("gpus", "g5.xlarge", "ami"), nil)[l.shape]; got != want {
		l.Errorf("%s: %d devices, want %d", what, got, want)
	}
}

const two = `- {instanceTypes: [g5.xlarge], driver: gpu.example.com, count: 2}`

// A node whose driver stops, whose devices are all tainted, or that has lost some says nothing about the next node, neither while it lives nor
// afterwards.
func TestABrokenNodeTeachesNothing(t *testing.T) {
	tainted := publish("n1", 0, 1, "a", "b")
	for i := range tainted.Spec.Devices {
		tainted.Spec.Devices[i].Taints = []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	}
	for what, slice := range map[string]*resourcev1.ResourceSlice{"empty": publish("n1", 0, 1), "tainted": tainted, "one lost": publish("n1", 0, 1, "a")} {
		l := newLesson(t)
		l.declare(two)
		l.shows("n1", 10, "a", "b")
		_, learned := l.SliceChanged(slice, false)
		l.expect(what, 2)
		if learned {
			t.Errorf("%s: it is news", what)
		}
		l.SliceChanged(slice, true)
		l.ClaimChanged(nodeClaim("n1", "g5.xlarge", "ami", 10), true)
		l.expect(what+", gone", 2)
	}
	for what, slice := range map[string]*resourcev1.ResourceSlice{"empty": publish("n1", 0, 1), "tainted": tainted} {
		l := newLesson(t)
		l.declare(two)
		l.ClaimChanged(nodeClaim("n1", "g5.xlarge", "ami", 10), false)
		l.SliceChanged(slice, false)
		l.expect(what+" from the beginning", 2)
	}
}

// Fewer devices than are declared, or than another node has shown, are believed for an hour, so that one broken node doesn't refuse pods for ever.
func TestFewerDevicesAreBelievedForAWhile(t *testing.T) {
	l := newLesson(t)
	l.declare(two)
	l.shows("n1", 10, "a")
	l.expect("fewer than declared", 1)
	l.pass(59 * time.Minute)
	l.shows("n1", 10, "a") // that it is looked at again proves nothing
	l.expect("for an hour", 1)
	if l.Tend() {
		t.Error("something has changed before its time")
	}
	l.pass(time.Minute)
	l.shows("n1", 10, "a")
	l.expect("after an hour", 2)
	if !l.Tend() {
		t.Error("refused pods are not planned for again")
	}
	l.pass(time.Hour)
	if l.Tend() {
		t.Error("the same is told twice")
	}
	l.shows("n2", 20, "a")
	l.pass(90 * time.Minute)
	l.expect("a second node says the same", 1)
	l.pass(time.Hour)
	l.expect("that has an end, too", 2)
	l.shows("n3", 30, "a", "b", "c")
	l.pass(1000 * time.Hour)
	l.expect("more than declared are believed", 3)

	for what, order := range map[string][]int{"the better node first": {0, 1}, "the better node last": {1, 0}} {
		l := newLesson(t)
		for _, i := range order {
			if i == 0 {
				l.shows("old", 10, "a", "b", "c")
			} else {
				l.shows("young", 20, "a")
			}
		}
		l.expect(what, 1)
		l.pass(2 * time.Hour)
		l.expect(what+", later", 3)
		l.shows("young", 20, "a", "b", "c")
		l.pass(2 * time.Hour)
		l.expect(what+", mended", 3)
	}
}

// What nodes with older images have shown is forgotten when it is known for newer ones, and what nodes of a class have shown ends with it.
func TestOldImagesAreForgotten(t *testing.T) {
	l := newLesson(t)
	for i, image := range []string{"ami-1", "ami-2", "ami-3"} {
		node := "n-" + image
		l.ClaimChanged(nodeClaim(node, "g5.xlarge", image, int64(i)), false)
		l.SliceChanged(publish(node, 0, 1, "a"), false)
		l.SliceChanged(publish(node, 0, 1, "a"), true)
		l.ClaimChanged(nodeClaim(node, "g5.xlarge", image, int64(i)), true)
	}
	l.Tend()
	if len(l.seen.learned) != 1 || l.seen.learned[kind{"gpus", "g5.xlarge", "ami-3"}] == nil {
		t.Errorf("%v is remembered", l.seen.learned)
	}
	l.expect("the newest", 1)
	_, _ = l.SetNodeClass("gpus", nil, true)
	if len(l.seen.learned) != 0 {
		t.Error("a class that is gone is remembered")
	}
}
