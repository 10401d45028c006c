// Command dovetail-scheduler is the upstream kube-scheduler with Dovetail's plugins compiled in and its controllers beside the scheduling
// loop. Flags, configuration, endpoints and metrics are upstream's; without our plugins in any profile it is a plain kube-scheduler. This
// package connects the parts and decides nothing.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"  // arguments of the plugins of scheduler-plugins

	"github.com/dovetail-scheduler/dovetail/pkg/version"
)

func main() {
	if err := version.Report(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	os.Exit(cli.Run(newCommand()))
}
