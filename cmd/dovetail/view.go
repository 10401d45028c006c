package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/view"
)

const viewHelp = `Serve a page that shows the cluster live: what it costs beside the least that its pods could cost, nodes with what is bound,
reserved, kept for DaemonSets and free, booting nodes, pods that wait by reason, what has happened, and what would happen if a node ended.

The page is served to this computer alone, until ctrl-C. Whoever can open it sees what your kubeconfig may read. It changes nothing, and it
works on clusters that run Karpenter, too.`

const viewExamples = `  dovetail view
  dovetail view --context staging --address 127.0.0.1:9001`

func viewCommand() *cobra.Command {
	f := newClusterFlags()
	address, noBound := "", false
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "view", Short: "The cluster live, as a page in your browser", Long: viewHelp, Example: viewExamples, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < time.Second {
				return usageError{fmt.Errorf("--interval %s: must be at least 1s", interval)}
			}
			if slices.Contains(f.existing, "-") {
				return usageError{errors.New("--existing -: must be a file: the page reads it again and again, and standard input can be read only once")}
			}
			if err := f.there(); err != nil {
				return err
			}
			f.quiet = true
			f.keepContext()
			listener, err := listen(cmd.Context(), address)
			if err != nil {
				return err
			}
			down := &outage{clock: clock.RealClock{}, print: cmd.PrintErrf}
			look := func(ctx context.Context) (*explain.Cluster, []string, error) {
				c, err := f.look(ctx, cmd, manifest.Options{}, about{"", "NodeClaim", ""}, about{"", "NodePool", ""}, about{"", "Node", ""})
				if !errors.Is(context.Cause(ctx), context.Canceled) { // otherwise the command ends
					down.looked(ctx, err)
				}
				if err != nil {
					return nil, nil, err
				}
				return c.Cluster, c.notes, nil
			}
			return serve(cmd, listener, view.NewFeed(look, interval, clock.RealClock{}), f.title(), !noBound)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&address, "address", "127.0.0.1:8765", "address to listen on; port 0: any that is free. Only addresses of this computer alone are accepted")
	flags.DurationVar(&interval, "interval", 2*time.Second, "how often to look; on a large cluster or a busy machine less often, half a minute after the last look at the latest")
	flags.BoolVar(&noBound, "no-bound", false, "don't work out what the pods would cost at least, which takes seconds on a large cluster")
	f.add(flags)
	return cmd
}

// outage tells on the terminal when the cluster can't be read, and when it can be again. Only the goroutine that looks uses it.
type outage struct {
	clock clock.PassiveClock
	print func(format string, args ...any)
	since time.Time // zero: there is none
}

// looked takes over how a look has ended. One that was given up has ctx's cause.
func (o *outage) looked(ctx context.Context, err error) {
	now := o.clock.Now()
	switch {
	case err != nil && o.since.IsZero():
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		o.since = now
		o.print("%s: The cluster can't be read: %v. The page tries again.\n", now.Format(time.TimeOnly), err)
	case err == nil && !o.since.IsZero():
		o.print("%s: The cluster can be read again, after %s.\n", now.Format(time.TimeOnly), explain.Age(now.Sub(o.since)))
		o.since = time.Time{}
	}
}

// there returns an error if something is missing that has to be there from the start: a file, or a cluster in the kubeconfig.
func (f *clusterFlags) there() error {
	for _, file := range f.existing {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("--existing: %w", err)
		}
	}
	if f.catalog != builtinCatalog {
		if _, err := os.Stat(f.catalog); err != nil {
			return fmt.Errorf("--catalog: %w", err)
		}
	}
	if f.config != "" {
		if _, err := readConfig(f.config); err != nil {
			return fmt.Errorf("--config %s: %w", f.config, err)
		}
	}
	if len(f.existing) > 0 {
		return nil
	}
	_, err := f.reader()
	return err
}

// keepContext keeps to the context that is current now: after 'kubectl config use-context' the page would show another cluster under this one's name.
func (f *clusterFlags) keepContext() {
	if len(f.existing) > 0 || f.kube.overrides.CurrentContext != "" {
		return
	}
	if config, err := f.kube.loader().RawConfig(); err == nil {
		f.kube.overrides.CurrentContext = config.CurrentContext
	}
}

// title returns what the page calls the cluster: the context's name.
func (f *clusterFlags) title() string {
	if len(f.existing) > 0 {
		return filepath.Base(f.existing[0])
	}
	return cmp.Or(f.kube.overrides.CurrentContext, "cluster")
}

// listen opens the port. The address must be one that only this computer reaches: the page has no login.
func listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usageError{fmt.Errorf("--address %s: must be HOST:PORT", address)}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usageError{fmt.Errorf("--address %s: must be an address of this computer alone, such as 127.0.0.1: the page shows what you may read, and has no login", address)}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--address %s: %w", address, err)
	}
	return listener, nil
}

// serve serves the page until the command is ended.
func serve(cmd *cobra.Command, listener net.Listener, feed *view.Feed, title string, bound bool) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	handler, err := view.NewServer(feed, title, listener.Addr().String())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		feed.Run(ctx, bound)
	}()
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "http://%s/\nThe page shows the cluster until ctrl-C.\n", listener.Addr())
	select {
	case <-ctx.Done():
		err = server.Close() // streams of updates have no end
	case err = <-ended:
	}
	stop()
	<-looking
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
