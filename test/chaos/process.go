package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// Process is the environment of a running product.
type Process struct {
	// Kube is its connection to the API server, Cloud to the AWS services at Endpoint.
	Kube  *kubeapi.Client
	Cloud http.RoundTripper
	// Clock is its clock, which may be wrong.
	Clock clock.WithTicker
	// Refuses is a third-party plugin; nil: there is none.
	Refuses *Refusal
	// Plain: there is a second profile, PlainScheduler, without the product's plugins.
	Plain bool
	// Queue: it reads the queue of EC2's signals.
	Queue bool
}

// Endpoint is the base URL of every AWS service.
const Endpoint = "http://ec2.simulated"

// Program is the product. It runs as a leader until ctx ends and returns when all its goroutines have ended.
type Program func(ctx context.Context, p Process) error

// process is one run of the program.
type process struct {
	number int
	kube   *kubeapi.Client
	cloud  *wire
	clock  *skewed
	// refuses, plain and queue are passed to the program.
	refuses *Refusal
	plain   bool
	queue   bool
	stop    context.CancelFunc
	ended   chan error
	killed  atomic.Bool
}

// start starts the program.
func (h *history) start() *process {
	h.starts++
	h.check.emptied.starts(h.starts)
	p := newProcess(h.starts, h.seed, h.api)
	p.cloud = h.faults.cloudWire(p, h.ec2.Handler())
	p.kube.Lag = h.faults.lag
	p.kube.Before = func(c *kubeapi.Call) *kubeapi.Fault { return h.faults.beforeKube(p, c) }
	p.kube.After = func(c *kubeapi.Call, err error) *kubeapi.Fault { return h.faults.afterKube(p, c, err) }
	p.plain, p.queue = h.lasting.plain, h.extras.queue()
	if f := h.lasting.faults[refusedByOurs]; f != nil {
		p.refuses = &Refusal{Fault: f, App: h.apps[0].name}
	}
	p.run(h.program, h.logger)
	h.note("process %d starts", p.number)
	return p
}

func newProcess(number int, seed uint64, api *kubeapi.Server) *process {
	p := &process{number: number, kube: api.Client(), clock: &skewed{}, ended: make(chan error, 1)}
	p.kube.Latency = latency(rand.New(rand.NewPCG(seed, uint64(1000+number))))
	return p
}

func (p *process) run(program Program, logger klog.Logger) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.LoggerWithValues(logger, "process", p.number)))
	p.stop = cancel
	go func() {
		p.ended <- program(ctx, Process{Kube: p.kube, Cloud: p.cloud, Clock: p.clock, Refuses: p.refuses, Plain: p.plain, Queue: p.queue})
	}()
}

// kill ends the process as SIGKILL would: requests that have arrived have their effect, no answer comes back, nothing else arrives. It
// may be called from one of the process's own calls.
func (p *process) kill() {
	p.killed.Store(true)
	p.kube.Kill()
	p.cloud.cut()
	p.stop()
}

// gone waits until a killed process has ended completely.
func (p *process) gone() error {
	select {
	case err := <-p.ended:
		if err != nil && !p.killed.Load() {
			return fmt.Errorf("process %d ended by itself: %w", p.number, err)
		}
		return nil
	case <-time.After(10 * time.Minute):
		return fmt.Errorf("process %d does not end", p.number)
	}
}

// latency returns a function that returns how long a call takes, a few milliseconds.
func latency(r *rand.Rand) func() time.Duration {
	locked := make(chan *rand.Rand, 1)
	locked <- r
	return func() time.Duration {
		r := <-locked
		defer func() { locked <- r }()
		return time.Millisecond + time.Duration(r.Int64N(int64(8*time.Millisecond)))
	}
}
