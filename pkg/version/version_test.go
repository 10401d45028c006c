package version

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestCheckLinkedVersion(t *testing.T) {
	for linked, want := range map[string]string{ // part of the error
		"v1.36.4":                     "",
		"v1.36.0":                     "",
		"v0.0.0-master+$Format:%H$":   "make build", // no -ldflags: go run, go install
		"v0.0.0-master+abc":           "linked without its Kubernetes version",
		"v1.35.4":                     "its code is that of 1.36",
		"v1.36":                       `"v1.36", which is not valid`,
		"":                            `"", which is not valid`,
		"$(git describe --match 'v')": "which is not valid",
	} {
		err := check(linked)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", linked, err, want)
		}
	}
	if err := Report(); err == nil {
		t.Error("a test is linked without a version, and nobody has noticed")
	}
}

// Kubernetes' own code parses the reported version and treats it as equal to the linked one.
func TestBuildMetadataDoesNotCount(t *testing.T) {
	const kubernetes = "v1.36.4"
	if got, want := full(kubernetes), "v1.36.4+dovetail-0.2.0"; got != want {
		t.Fatalf("reported as %s, want %s", got, want)
	}
	reported, err := utilversion.Parse(full(kubernetes)) // as the NodeDeclaredFeatures plugin does
	if err != nil {
		t.Fatal(err)
	}
	if own := utilversion.MustParseSemantic(kubernetes); reported.LessThan(own) || reported.GreaterThan(own) || reported.Minor() != 36 || reported.PreRelease() != "" {
		t.Errorf("%s is not the same as %s", reported, own)
	}
}

// The linked versions are those of the code.
func TestLinkedVersionIsThatOfTheModule(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`).FindSubmatch(mod)
	if required == nil {
		t.Fatal("go.mod has no k8s.io/kubernetes")
	}
	for file, form := range map[string]string{"Makefile": "VERSION := %s\n", "test/cluster/build.go": "LinkVersion = %q\n", "docs/install.md": "version.gitVersion=%s "} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(form, required[1]); !strings.Contains(string(text), want) {
			t.Errorf("%s doesn't say %q, as go.mod does", file, want)
		}
	}
}

func TestBuildInfo(t *testing.T) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "dovetail_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if v := family.GetMetric()[0].GetGauge().GetValue(); v != 1 || labels["version"] != Version || labels["goversion"] != runtime.Version() || labels["kubernetes_version"] == "" {
			t.Errorf("%v of %v", v, labels)
		}
		return
	}
	t.Error("there is no dovetail_build_info")
}

func TestUserAgent(t *testing.T) {
	if got, want := UserAgent(), "dovetail/0.2.0 ("; !strings.HasPrefix(got, want) || !strings.Contains(got, ") kubernetes/v") {
		t.Errorf("user agent %q", got)
	}
}
