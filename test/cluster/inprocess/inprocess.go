package inprocess

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	apiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/utils/ktesting"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// Start runs etcd and kube-apiserver (with RBAC) in this process until the test ends, and installs custom resources, the manifests of
// manifests/secondary and identities. No controller creates ServiceAccounts for namespaces here, so pods need none.
func Start(t *testing.T) *cluster.Cluster {
	t.Helper()
	storage := startEtcd(t)
	// The network of Services is the default: a certificate for it comes with the source of kube-apiserver. For another one it would be
	// made and written there, and servers that start side by side would read each other's halves.
	flags := []string{"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"}
	server, err := apiservertesting.StartTestServer(ktesting.Init(t), nil, flags, storage)
	if err != nil {
		t.Fatalf("starting kube-apiserver: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := cluster.Adopt(ctx, server.ClientConfig, server.TearDownFn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// startEtcd runs a single member on ports that the kernel chooses and returns the storage configuration to reach it with.
func startEtcd(t *testing.T) *storagebackend.Config {
	t.Helper()
	any := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.LogLevel = "panic"                                                     // it logs the closing of its listeners as an error
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // NewConfig leaves it at zero, which describes every request for the log
	cfg.UnsafeNoFsync = true
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{any}, []url.URL{any}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{any}, []url.URL{any}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatalf("starting etcd: %v", err)
	}
	t.Cleanup(member.Close)
	storage := storagebackend.NewDefaultConfig("/registry", nil)
	storage.Transport.ServerList = []string{fmt.Sprintf("http://%s", member.Clients[0].Addr())}
	return storage
}
