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
// Locks: mu guards world and is never held while a fault hook, Machines or the network is waited for; effectMu is taken
// before mu and keeps the order of what Machines are told.
type Sim struct {
	cfg    Config
	clock  clock.Clock
	server *http.Server // nil: unserved
	url    string

	mu    sync.Mutex
	world *world
	// wake tells the loop that the next event may be earlier than it thinks.
	wake     chan struct{}
	arrivals broadcast

	effectMu sync.Mutex
	faults   faults
	requests atomic.Int64
	buckets  buckets

	ctx  context.Context // ends with Close
	stop func()
	done <-chan struct{}
	wg   sync.WaitGroup
}

// New starts a simulator. It answers when New returns.
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
			panic(fmt.Sprintf("EC2 simulator: %v", err)) // nobody else could notice that the listener broke
		}
	})
	return s, nil
}

// NewUnserved starts a simulator that listens nowhere: whoever has its Handler can reach it.
func NewUnserved(cfg Config) (*Sim, error) { return start(cfg, "http://ec2.simulated") }

func start(cfg Config, url string) (*Sim, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring the EC2 simulator: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sim{
		cfg: cfg, clock: cfg.Clock, url: url, ctx: ctx, world: newWorld(&cfg, cfg.Clock.Now()), wake: make(chan struct{}, 1),
		arrivals: newBroadcast(), buckets: newBuckets(), stop: cancel, done: ctx.Done(),
	}
	s.wg.Go(s.loop)
	return s, nil
}

// Close stops the simulator and waits for everything it started. Connections are cut.
func (s *Sim) Close() error {
	s.stop()
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	s.wg.Wait()
	return err
}

// Endpoint is the base URL for every service.
func (s *Sim) Endpoint() string { return s.url }

// Env are environment variables (NAME=value) that point an SDK or the AWS CLI at the simulator.
func (s *Sim) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.url, "AWS_REGION=" + s.cfg.Region, "AWS_DEFAULT_REGION=" + s.cfg.Region, "AWS_ACCESS_KEY_ID=SIMULATED", "AWS_SECRET_ACCESS_KEY=simulated",
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Region, Cluster, Zones and QueueURL of the simulated account.
func (s *Sim) Region() string  { return s.cfg.Region }
func (s *Sim) Cluster() string { return s.cfg.Cluster }
func (s *Sim) Zones() []string { return s.cfg.Zones }
func (s *Sim) QueueURL() string {
	return s.url + "/" + s.cfg.Account + "/" + s.cfg.Queue
}

// loop lets events happen on time.
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

// with runs f on the world as it is now and then lets the effects happen, outside the lock.
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

// sleep waits on the simulator's clock; false when the simulator or the request ended.
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

// broadcast wakes everybody who waits.
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
