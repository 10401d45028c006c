package kubeapi

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// A client that closes a watch whose server has ended it doesn't wait for frames that are still under way.
func TestWatchIsClosedWhileFramesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(nil, selector{}, func() time.Duration { return time.Hour }, time.Now)
		w.pushText(watch.Added, []byte("{}"))
		w.end(io.EOF)
		var err error
		go func() { _, err = w.Read(make([]byte, 10)) }()
		synctest.Wait()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err != io.ErrClosedPipe {
			t.Errorf("reading ended with %v", err)
		}
	})
}
