package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd serves a single-member etcd without TLS until SIGTERM. It doesn't fsync: its data survives a crash of the process but
// perhaps not one of the host, and a test cluster outlives neither.
func runEtcd(args []string) error {
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	dataDir := flags.String("data-dir", "", "directory for the member's data")
	listenClient := flags.String("listen-client", "", "URL to serve clients on, e.g. http://127.0.0.1:2379")
	listenPeer := flags.String("listen-peer", "", "URL to serve peers on; a single member still opens it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, err := url.Parse(*listenClient)
	if err != nil || client.Host == "" {
		return fmt.Errorf("--listen-client %q is not a URL", *listenClient)
	}
	peer, err := url.Parse(*listenPeer)
	if err != nil || peer.Host == "" {
		return fmt.Errorf("--listen-peer %q is not a URL", *listenPeer)
	}

	cfg := embed.NewConfig()
	cfg.Dir = *dataDir
	cfg.Logger = "zap"
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{"stderr"}
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // NewConfig leaves it at zero, which logs every request
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 4 << 30
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	defer member.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-member.Err():
		return fmt.Errorf("serving: %w", err)
	}
}
