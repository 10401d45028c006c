package integration

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// sideBySide is how many tests run at the same time. Each has a control plane, an account and a scheduler of its own and waits for most of
// its time, so that it isn't for the processors to say. With many more than two of them an API server takes a minute to start on two processors.
const sideBySide = 4

// Tests run side by side (t.Parallel), unless they keep the machine busy by themselves or compare how fast things are: those come first, one
// after the other, and say so.
func TestMain(m *testing.M) {
	flag.Parse()
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if !told {
		if err := flag.Set("test.parallel", fmt.Sprint(sideBySide)); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if denied := deniedByPolicies(); code == 0 && denied != "" {
		fmt.Println("Dovetail may not do what manifests/admission denies it, and it has tried:", denied)
		code = 1
	}
	os.Exit(code)
}

// deniedByPolicies describes how often each of the shipped admission policies has denied a request. API servers run in this process, so their
// metrics are here; what is allowed isn't counted. Each test makes sure that the policies are there.
func deniedByPolicies() string {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, f := range families {
		if f.GetName() != "apiserver_validating_admission_policy_check_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if !strings.HasPrefix(labels["policy"], "dovetail-") || labels["policy"] == "dovetail-surge" { // a test of that one provokes it
				continue
			}
			if labels["enforcement_action"] != "allow" {
				out = append(out, fmt.Sprintf("%s: %s %v times (%s)", labels["policy"], labels["enforcement_action"], m.GetCounter().GetValue(), labels["error_type"]))
			}
		}
	}
	return strings.Join(out, "; ")
}
