package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	kubeversion "k8s.io/component-base/version"
)

// Version of Dovetail.
const Version = "0.2.0"

// linked is the Kubernetes version that the linker put into the binary. component-base returns it until Report has been called.
var linked = kubeversion.Get().GitVersion

// Info describes a build.
type Info struct {
	Version           string `json:"version"`
	KubernetesVersion string `json:"kubernetesVersion"`
	GoVersion         string `json:"goVersion"`
	Platform          string `json:"platform"`
	// Commit is the revision that the binary was built from; empty if the go command could not determine it.
	Commit string `json:"commit,omitempty"`
}

// Get describes this build.
func Get() Info {
	return Info{Version: Version, KubernetesVersion: linked, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Commit: commit()}
}

func commit() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, dirty := "", ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}

// UserAgent returns the user agent for requests to API servers.
func UserAgent() string {
	i := Get()
	return fmt.Sprintf("dovetail/%s (%s) kubernetes/%s", i.Version, i.Platform, i.KubernetesVersion)
}

// Report checks what the binary was linked with, and makes Kubernetes' code report Dovetail's version after its own, as in
// "v1.36.4+dovetail-0.2.0": in --version, the log and /statusz. The part after the plus sign is build metadata of a semantic version,
// which is ignored in comparisons: the effective version stays that of Kubernetes. Commands call Report before anything else; tests,
// which the go command links without a version, don't.
func Report() error {
	if err := check(linked); err != nil {
		return err
	}
	if err := kubeversion.SetDynamicVersion(full(linked)); err != nil {
		return fmt.Errorf("reporting the version: %w", err)
	}
	return nil
}

func full(kubernetes string) string { return kubernetes + "+dovetail-" + Version }

// check returns why a binary that was linked with this Kubernetes version must not run. A binary without a version considers itself
// v0.0.0: then the NodeDeclaredFeatures plugin requires nodes to declare features that have long ceased to be optional.
func check(linked string) error {
	const build = "build it with 'make build', or with the -ldflags that docs/install.md gives"
	if strings.HasPrefix(linked, "v0.0.0") {
		return fmt.Errorf("this binary was linked without its Kubernetes version and reports v0.0.0: %s", build)
	}
	v, err := utilversion.ParseSemantic(linked)
	if err != nil {
		return fmt.Errorf("this binary was linked with the Kubernetes version %q, which is not valid (%w): %s", linked, err, build)
	}
	if minor := fmt.Sprintf("%d.%d", v.Major(), v.Minor()); minor != kubeversion.DefaultKubeBinaryVersion {
		return fmt.Errorf("this binary was linked as Kubernetes %s, but its code is that of %s: %s", linked, kubeversion.DefaultKubeBinaryVersion, build)
	}
	return nil
}
