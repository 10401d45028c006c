package ec2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Sim is a running simulator.
//
// Locks: mu guards world and is never held during a call of a fault hook or Machines, or while waiting for the network. effectMu is
// taken before mu and keeps the calls of Machines in order.
type Sim struct {
	cfg    Config
	clock  clock.Clock
	server *http.Server // nil: created by NewUnserved
	url    string

	mu    sync.Mutex
	world *world
	// wake makes the loop check whether the next event is earlier than it was.
	wake     chan struct{}
	arrivals broadcast

	effectMu sync.Mutex
	faults   faults
	requests atomic.Int64
	buckets  buckets

	ctx  context.Context // canceled by Close
	stop func()
	done <-chan struct{}
	wg   sync.WaitGroup
}

// New starts a simulator. It accepts calls as soon as New returns.
func New(cfg Config) (*Sim, error) {
	listen := cfg.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("starting the EC2 simulator: %w", err)
	}
	s, err := start(cfg, "http://"+listener.Addr().String())
	if err != nil {
		listener.Close()
		return nil, err
	}
	s.server = &http.Server{Handler: s.Handler(), BaseContext: func(net.Listener) context.Context { return s.ctx }, ReadHeaderTimeout: time.Minute}
	s.wg.Go(func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("EC2 simulator: %v", err)) // nothing else would report that the listener failed
		}
	})
	return s, nil
}

// NewUnserved starts a simulator that listens on no address: callers reach it through its Handler.
func NewUnserved(cfg Config) (*Sim, error) { return start(cfg, "http://ec2.simulated") }

func start(cfg Config, url string) (*Sim, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring the EC2 simulator: %w", err)
	}
	world := newWorld(&cfg, cfg.Clock.Now())
	if cfg.Policy != nil {
		if world.policy, err = parsePolicy(&cfg); err != nil {
			return nil, fmt.Errorf("configuring the EC2 simulator: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sim{
		cfg: cfg, clock: cfg.Clock, url: url, ctx: ctx, world: world, wake: make(chan struct{}, 1),
		arrivals: newBroadcast(), buckets: newBuckets(), stop: cancel, done: ctx.Done(),
	}
	s.wg.Go(s.loop)
	return s, nil
}

// Close stops the simulator, cuts its connections and waits for everything it started.
func (s *Sim) Close() error {
	s.stop()
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	s.wg.Wait()
	return err
}

// Endpoint returns the base URL of every service.
func (s *Sim) Endpoint() string { return s.url }

// Env returns environment variables (NAME=value) that point the program under test to the simulator.
func (s *Sim) Env() []string { return s.env(programKey) }

// AdminEnv returns those that point an SDK or the AWS CLI to the simulator, for somebody who may do everything.
func (s *Sim) AdminEnv() []string { return s.env(adminKey) }

func (s *Sim) env(key string) []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.url, "AWS_REGION=" + s.cfg.Region, "AWS_DEFAULT_REGION=" + s.cfg.Region, "AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=simulated",
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Region, Cluster, Zones and QueueURL return properties of the simulated account.
func (s *Sim) Region() string  { return s.cfg.Region }
func (s *Sim) Cluster() string { return s.cfg.Cluster }
func (s *Sim) Zones() []string { return s.cfg.Zones }
func (s *Sim) QueueURL() string {
	return s.url + "/" + s.cfg.Account + "/" + s.cfg.Queue
}

// loop runs the world's events when they are due.
func (s *Sim) loop() {
	for {
		s.with(func(*world) {})
		s.mu.Lock()
		next, ok := s.world.next()
		s.mu.Unlock()
		var timer clock.Timer
		var c <-chan time.Time
		if ok {
			timer = s.clock.NewTimer(max(0, next.Sub(s.clock.Now())))
			c = timer.C()
		}
		select {
		case <-s.done:
		case <-s.wake:
		case <-c:
		}
		if timer != nil {
			timer.Stop()
		}
		select {
		case <-s.done:
			return
		default:
		}
	}
}

// with runs f on the current world and then, without the lock, the effects.
func (s *Sim) with(f func(*world)) {
	s.mu.Lock()
	s.world.settle(s.clock.Now())
	before, had := s.world.next()
	f(s.world)
	after, has := s.world.next()
	pending := len(s.world.effects) > 0
	s.mu.Unlock()
	if has && (!had || after.Before(before)) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	if pending {
		s.applyEffects()
	}
}

func (s *Sim) applyEffects() {
	s.effectMu.Lock()
	defer s.effectMu.Unlock()
	s.mu.Lock()
	effects := s.world.effects
	s.world.effects = nil
	s.mu.Unlock()
	for _, e := range effects {
		switch {
		case e.arrived:
			s.arrivals.fire()
		case s.cfg.Machines == nil:
		case e.boot != nil:
			s.cfg.Machines.Boot(*e.boot)
		case e.halt != "":
			s.cfg.Machines.Halt(e.halt)
		}
	}
}

// sleep waits on the simulator's clock; it returns false if the simulator is closed or the request is canceled first.
func (s *Sim) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := s.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}

// broadcast wakes all waiting goroutines.
type broadcast struct {
	mu *sync.Mutex
	c  *chan struct{}
}

func newBroadcast() broadcast {
	c := make(chan struct{})
	return broadcast{mu: &sync.Mutex{}, c: &c}
}

func (b broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *b.c
}

func (b broadcast) fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(*b.c)
	*b.c = make(chan struct{})
}
