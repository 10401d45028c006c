package clustermetrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Listener serves all metrics of the process over plain HTTP, without authentication, for scrapers that can't use the scheduler's own port.
type Listener struct {
	listener net.Listener
	server   *http.Server
}

// scrapes is how many scrapes run at the same time at most; further ones get 503. The listener asks nobody who they are.
const scrapes = 3

// Listen begins to listen on an address (":8080"). Serve answers.
func Listen(address string) (*Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for scrapes of metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(legacyregistry.DefaultGatherer, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes, ProcessStartTime: legacyregistry.GetProcessStart()}))
	return &Listener{l, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16}}, nil
}

// Address returns the address that the listener has, with the port that it was given.
func (l *Listener) Address() string { return l.listener.Addr().String() }

// Serve answers until ctx ends.
func (l *Listener) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = l.server.Close() })
	defer stop()
	if err := l.server.Serve(l.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}
