package chaos

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"
)

// A bubble's clock advances only while all its goroutines are blocked on something within the bubble. A mutex isn't such a thing: if a
// goroutine sleeps while it holds one that another waits for, the clock stands still for ever, and no error says so. The watchdog lives
// outside the bubble, in real time, and ends the test process instead.
//
// It counts looks instead of measuring time, so a machine that was suspended meanwhile costs one look.
const (
	lookEvery = 10 * time.Second
	// stalledLooks without a step between them are five minutes. A step takes milliseconds, and seconds if a race detector and a busy
	// machine slow it down; setting up or ending a history may take some more.
	stalledLooks = 30
)

// watchdog watches one history or scene.
type watchdog struct {
	name string
	// stalled is called once, with what happened and the stacks of all goroutines.
	stalled func(why string, stacks []byte)

	// now is the bubble's time at its last step, bubble the name that stacks have for it.
	now    atomic.Pointer[time.Time]
	bubble atomic.Pointer[string]

	seen *time.Time
	idle int

	stop, ended chan struct{}
}

// watchOver starts a watchdog; it must be called outside the bubble. What it returns ends the watchdog.
func watchOver(name string) (*watchdog, func()) {
	w := &watchdog{name: name, stalled: endProcess}
	return w, w.run(lookEvery, stalledLooks)
}

// endProcess is what a watchdog does when the clock stands still: the goroutines can't be stopped from outside.
func endProcess(why string, stacks []byte) {
	fmt.Fprintf(os.Stderr, "%s\n\n%s\n", why, stacks)
	panic(why)
}

func (w *watchdog) run(every time.Duration, looks int) (end func()) {
	w.stop, w.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
			if w.look(looks) {
				why := w.why(every * time.Duration(looks))
				var stacks bytes.Buffer
				if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
					fmt.Fprintf(&stacks, "writing the stacks: %v", err)
				}
				w.stalled(why, stacks.Bytes())
				return
			}
		}
	}()
	return func() {
		close(w.stop)
		<-w.ended
	}
}

// look reports whether there was no step since so many looks.
func (w *watchdog) look(most int) bool {
	if now := w.now.Load(); now != w.seen {
		w.seen, w.idle = now, 0
		return false
	}
	w.idle++
	return w.idle >= most
}

func (w *watchdog) why(patience time.Duration) string {
	at, bubble := "before its first step", "its bubble"
	if t := w.now.Load(); t != nil {
		at = fmt.Sprintf("%.1fs after its begin", t.Sub(begin).Seconds())
	}
	if b := w.bubble.Load(); b != nil {
		bubble = *b
	}
	return fmt.Sprintf("%s makes no progress: its clock has stood still %s, for %s of real time. Either a step computes for ever, or a goroutine of %s sleeps "+
		"while it holds a mutex that another one waits for (sync.Mutex.Lock in the stacks)", w.name, at, patience, bubble)
}

var bubbleName = regexp.MustCompile(`synctest bubble \d+`)

// entered tells the watchdog which bubble it watches; it is called in the bubble.
func (w *watchdog) entered() {
	head := make([]byte, 100)
	name := string(bubbleName.Find(head[:runtime.Stack(head, false)]))
	w.bubble.Store(&name)
}

// stepped tells the watchdog that the bubble's clock has advanced; it is called in the bubble.
func (w *watchdog) stepped() {
	now := time.Now()
	w.now.Store(&now)
}
