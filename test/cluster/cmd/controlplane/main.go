// Command controlplane is etcd, kube-apiserver and kube-controller-manager in one binary, so that only one binary has to be linked.
// Only test clusters and the demo run it.
//
//	controlplane etcd --data-dir DIR --listen-client http://127.0.0.1:PORT
//	controlplane kube-apiserver [the upstream flags]
//	controlplane kube-controller-manager [the upstream flags]
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager [flags]")
		os.Exit(2)
	}
	name, args := os.Args[1], os.Args[2:]
	// The upstream commands read os.Args in a few places (for the version flag, for example), so the subcommand is removed from it.
	os.Args = append([]string{name}, args...)
	switch name {
	case "etcd":
		if err := runEtcd(args); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	default:
		fmt.Fprintf(os.Stderr, "controlplane: %q is none of etcd, kube-apiserver, kube-controller-manager\n", name)
		os.Exit(2)
	}
}
