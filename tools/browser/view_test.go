package browser

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	dovetail = flag.String("dovetail", "", "the tool")
	pictures = flag.String("pictures", "", "where to put screenshots")
)

// serve starts the page of a cluster in a file, and returns its address.
func serve(t *testing.T, file, address string) (string, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(*dovetail, "view", "--existing", file, "--address", address)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the address is %q: %v", line, err)
	}
	return strings.TrimSpace(line), cmd
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it has ended before, or ends now
	_ = cmd.Wait()
}

// browse starts a browser. Messages of its console that report an error fail the test: among them are those about the page's policy.
func browse(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1360, 1040))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, 12*time.Minute)
	t.Cleanup(stop)
	return ctx
}

func run(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// until waits for an expression of JavaScript to be true. It goes on while the page is loaded again, which chromedp.Poll doesn't.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	limited, stop := context.WithTimeout(ctx, 8*time.Minute)
	defer stop()
	for {
		is := false
		err := chromedp.Run(limited, chromedp.Evaluate(expression, &is))
		if err == nil && is {
			return
		}
		select {
		case <-limited.Done():
			var body string
			_ = chromedp.Run(ctx, chromedp.Text("body", &body)) // for the message only
			t.Fatalf("%s: %v; the page is\n%.1500s", expression, err, body)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// number is an expression for the number that an element shows.
func number(id string) string {
	return fmt.Sprintf("Number(document.getElementById(%q).textContent)", id)
}

func shows(c *cluster) string {
	return fmt.Sprintf("%s === %d && %s === %d && %s === %d", number("nodeCount"), c.nodes, number("running"), c.running, number("waitingPods"), c.waiting)
}

func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		var raw []byte
		run(t, ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.CaptureScreenshot(&raw))
		if err := os.WriteFile(filepath.Join(*pictures, "view-"+name+"-"+scheme+".png"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// measured prints what the browser has used since the page was opened.
func measured(t *testing.T, ctx context.Context, what string) {
	t.Helper()
	var metrics []*performance.Metric
	run(t, ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		metrics, err = performance.GetMetrics().Do(ctx)
		return err
	}))
	v := map[string]float64{}
	for _, m := range metrics {
		v[m.Name] = m.Value
	}
	t.Logf("%s: script %.2f s, layout and style %.2f s, all tasks %.2f s in %.0f s; heap %.1f MB, %.0f elements", what, v["ScriptDuration"], v["LayoutDuration"]+v["RecalcStyleDuration"],
		v["TaskDuration"], v["Timestamp"]-v["NavigationStart"], v["JSHeapUsedSize"]/1e6, v["Nodes"])
}

// The page's numbers are those of the objects, also after these have changed, at each size; nodes are reached with the keyboard alone; and what
// happens if the page's server is started again is told and mended.
func TestPage(t *testing.T) {
	for _, nodes := range []int{10, 300, 2000} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cluster.json")
			c := clusterOf(nodes)
			c.write(t, file)
			url, server := serve(t, file, "127.0.0.1:0")
			ctx := browse(t)
			run(t, ctx, performance.Enable(), chromedp.Navigate(url))
			until(t, ctx, shows(c))
			until(t, ctx, "document.querySelectorAll('#space .row').length === "+fmt.Sprint(min(nodes, 20))+" || "+fmt.Sprint(nodes)+" > 12 && document.querySelectorAll('#space .row').length < 40")
			if nodes < 2000 {
				until(t, ctx, "document.getElementById('bound').textContent.startsWith('$')")
			}
			picture(t, ctx, fmt.Sprint(nodes))
			measured(t, ctx, fmt.Sprintf("%d nodes, opened", nodes))

			c.pod("one-more", "", "ReplicaSet", "900", "4Gi")
			c.node(nodes, false)
			c.write(t, file)
			until(t, ctx, shows(c))
			measured(t, ctx, fmt.Sprintf("%d nodes, after a change", nodes))

			// Markup in messages is text.
			until(t, ctx, "document.getElementById('timeline').textContent.includes('<b>in time</b>')")
			run(t, ctx, chromedp.Focus("#nodes"), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.Enter))
			until(t, ctx, "!document.getElementById('panel').hidden && document.getElementById('panelBody').textContent.includes('Node')")
			picture(t, ctx, fmt.Sprint(nodes)+"-node")
			run(t, ctx, chromedp.KeyEvent(kb.Escape))
			until(t, ctx, "document.getElementById('panel').hidden && document.activeElement.id === 'nodes'")

			if nodes == 10 {
				end(server)
				until(t, ctx, "document.getElementById('banner').textContent.startsWith('Connection lost since')")
				picture(t, ctx, "lost")
				// The next one shows another cluster: the open page becomes that one's.
				other, c := filepath.Join(t.TempDir(), "other.json"), clusterOf(5)
				c.write(t, other)
				serve(t, other, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/"))
				until(t, ctx, "document.querySelector('h1').textContent === 'other.json' && document.getElementById('banner').hidden")
				until(t, ctx, shows(c))
			}
		})
	}
}
