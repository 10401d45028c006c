package version

import (
	"runtime"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace: "dovetail", Name: "build_info",
	Help:           "1, labeled by the versions of Dovetail, of the Kubernetes that it is built from and of Go, by architecture and commit.",
	StabilityLevel: metrics.ALPHA,
}, []string{"version", "kubernetes_version", "goversion", "goarch", "commit"})

func init() {
	legacyregistry.MustRegister(buildInfo)
	i := Get()
	buildInfo.WithLabelValues(i.Version, i.KubernetesVersion, i.GoVersion, runtime.GOARCH, i.Commit).Set(1)
}
