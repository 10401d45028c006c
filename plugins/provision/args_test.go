package provision

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// defaults returns the arguments of an administrator who only names the cluster.
func defaults() Args {
	return Args{
		ClusterName:             "dev",
		VMMemoryOverheadPercent: ptr.To(0.075),
		BatchIdleDuration:       &metav1.Duration{Duration: 300 * time.Millisecond},
		BatchMaxDuration:        &metav1.Duration{Duration: 3 * time.Second},
		RegistrationTimeout:     &metav1.Duration{Duration: 15 * time.Minute},
		InitializationTimeout:   &metav1.Duration{Duration: time.Hour},
		MaxClaimsInFlight:       ptr.To(1000),

		MaxTerminationsPerMinute: ptr.To(100), NewImageNodes: ptr.To(20),
		PreferencePolicy:   "Respect",
		MinValuesPolicy:    "Strict",
		SimulationDenyList: []string{"Coscheduling"},
	}
}

func TestDecodeArgs(t *testing.T) {
	for _, tc := range []struct {
		name string
		raw  string
		want func(*Args) // what differs from the defaults
	}{
		{"only the cluster's name: defaults", `{"clusterName":"dev"}`, func(*Args) {}},
		{"YAML does as well", "clusterName: dev\npreemptFirst: true\n", func(a *Args) { a.PreemptFirst = true }},
		{
			"with kind and version", `{"apiVersion":"config.dovetail.sh/v1alpha1","kind":"ProvisionArgs","clusterName":"dev"}`,
			func(a *Args) {
				a.TypeMeta = metav1.TypeMeta{APIVersion: "config.dovetail.sh/v1alpha1", Kind: "ProvisionArgs"}
			},
		},
		{
			"the version of before the first release", `{"apiVersion":"config.dovetail.sh/v1","kind":"ProvisionArgs","clusterName":"dev"}`,
			func(a *Args) {
				a.TypeMeta = metav1.TypeMeta{APIVersion: "config.dovetail.sh/v1alpha1", Kind: "ProvisionArgs"}
				a.Warnings = []string{"apiVersion config.dovetail.sh/v1 is called config.dovetail.sh/v1alpha1 now"}
			},
		},
		{
			"zero memory overhead is a value, not a default", `{"clusterName":"dev","vmMemoryOverheadPercent":0}`,
			func(a *Args) { a.VMMemoryOverheadPercent = ptr.To(0.0) },
		},
		{
			"an empty deny list is a value, not a default", `{"clusterName":"dev","simulationDenyList":[]}`,
			func(a *Args) { a.SimulationDenyList = []string{} },
		},
		{
			"an old name", `{"clusterName":"dev","nodeSurcharge":0.01}`,
			func(a *Args) {
				a.NodeSurchargeDollarsPerHour, a.Warnings = 0.01, []string{"nodeSurcharge is called nodeSurchargeDollarsPerHour now"}
			},
		},
		{
			"everything set",
			`{"clusterName":"dev","clusterEndpoint":"https://x","clusterCABundle":"` + testBundle + `","clusterCIDR":"10.0.0.0/16","region":"eu-west-1",
			  "vmMemoryOverheadPercent":0.1,"reservedENIs":1,"prefixDelegation":true,"batchIdleDuration":"20ms","batchMaxDuration":"20ms","maxClaimsInFlight":1,"preemptFirst":true,
			  "interruptionQueue":"q","defaultInstanceProfile":"p","nodePools":[{"name":"a","spec":{"weight":1}}],"ec2NodeClasses":[{"name":"b","spec":{}}],
			  "nodePoolSelector":{"matchLabels":{"team":"a"}},"namespaceSelector":{"matchLabels":{"team":"b"}},"nodeSurchargeDollarsPerHour":0.01,"priceFactors":{"m6g":1.1},"commitments":[{"name":"sp","dollarsPerHour":10.1,"rateFactor":0.72,"instanceFamilies":["m5"]}],
			  "maxTerminationsPerMinute":2,"maxDollarsPerHour":10.5,"limits":{"nodes":3,"cpu":"1500m","memory":"4Ti","nvidia.com/gpu":0},"maxLaunchesPerMinute":3,"newImageNodes":0,"registrationTimeout":"20m","initializationTimeout":"2h","disruptionDryRun":true,"disableDryRun":true,"enableZonalShift":true,"metricsBindAddress":"[::]:8080","disableClusterStateObservability":true,"preferencePolicy":"Ignore","minValuesPolicy":"BestEffort","simulationDenyList":["A","B"]}`,
			func(a *Args) {
				*a = Args{
					ClusterName: "dev", ClusterEndpoint: "https://x", ClusterCABundle: testBundle, ClusterCIDR: "10.0.0.0/16", Region: "eu-west-1",
					VMMemoryOverheadPercent: ptr.To(0.1), ReservedENIs: 1, PrefixDelegation: true, BatchIdleDuration: &metav1.Duration{Duration: 20 * time.Millisecond},
					BatchMaxDuration: &metav1.Duration{Duration: 20 * time.Millisecond}, MaxClaimsInFlight: ptr.To(1), PreemptFirst: true,
					InterruptionQueue: "q", DefaultInstanceProfile: "p", MetricsBindAddress: "[::]:8080", DisableClusterStateObservability: true,
					NodePools:                   []Inline{{Name: "a", Spec: []byte(`{"weight":1}`)}},
					EC2NodeClasses:              []Inline{{Name: "b", Spec: []byte(`{}`)}},
					NodePoolSelector:            &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
					NamespaceSelector:           &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}},
					NodeSurchargeDollarsPerHour: 0.01, PriceFactors: map[string]float64{"m6g": 1.1},
					Commitments:              []Commitment{{Name: "sp", DollarsPerHour: 10.1, RateFactor: 0.72, InstanceFamilies: []string{"m5"}}},
					RegistrationTimeout:      &metav1.Duration{Duration: 20 * time.Minute},
					InitializationTimeout:    &metav1.Duration{Duration: 2 * time.Hour},
					MaxTerminationsPerMinute: ptr.To(2), MaxDollarsPerHour: 10.5, Limits: corev1.ResourceList{"nodes": resource.MustParse("3"), "cpu": resource.MustParse("1500m"), "memory": resource.MustParse("4Ti"), "nvidia.com/gpu": resource.MustParse("0")}, MaxLaunchesPerMinute: 3, NewImageNodes: ptr.To(0), DisruptionDryRun: true, DisableDryRun: true, EnableZonalShift: true, PreferencePolicy: "Ignore", MinValuesPolicy: "BestEffort", SimulationDenyList: []string{"A", "B"},
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := defaults()
			tc.want(&want)
			got, err := DecodeArgs(&runtime.Unknown{Raw: []byte(tc.raw)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeArgsNamesWhatIsWrong(t *testing.T) {
	unknown := func(raw string) runtime.Object { return &runtime.Unknown{Raw: []byte(raw)} }
	for _, tc := range []struct {
		name string
		args runtime.Object
		want []string // parts of the error
	}{
		{"no arguments at all", nil, []string{"clusterName: Required value"}},
		{"empty arguments", unknown(""), []string{"clusterName: Required value"}},
		{"a duration that is none", unknown(`{"clusterName":"dev","registrationTimeout":"1d"}`), []string{"registrationTimeout: ", `"1d"`}},
		{"the name that the shipped file has", unknown(`{"clusterName":"CHANGE-ME"}`), []string{`clusterName: Invalid value: "CHANGE-ME"`}},
		{"a name that no tag can hold", unknown(`{"clusterName":"my cluster"}`), []string{"clusterName: Invalid value"}},
		{"a misspelt field", unknown(`{"clusterName":"dev","batchIdle":"1s"}`), []string{`unknown field "batchIdle"`}},
		{"a field in the wrong case", unknown(`{"ClusterName":"dev"}`), []string{`unknown field "ClusterName"`}},
		{"a field given twice", unknown("clusterName: a\nclusterName: b\n"), []string{`"clusterName" already set`}},
		{"a number where a duration belongs", unknown(`{"clusterName":"dev","batchMaxDuration":5}`), []string{"batchMaxDuration", "Duration"}},
		{"text where a number belongs", unknown(`{"clusterName":"dev","maxClaimsInFlight":"many"}`), []string{"maxClaimsInFlight"}},
		{"another kind", unknown(`{"apiVersion":"v1","kind":"Pod","clusterName":"dev"}`), []string{`apiVersion: Unsupported value: "v1/Pod"`, `"config.dovetail.sh/v1alpha1/ProvisionArgs"`}},
		{"typed arguments of somebody else", &corev1.Pod{}, []string{"want config.dovetail.sh/v1alpha1 ProvisionArgs, have *v1.Pod"}},
		{"a cluster name EKS does not allow", unknown(`{"clusterName":"` + strings.Repeat("x", 101) + `"}`), []string{"clusterName: Invalid value"}},
		{"a batch that never ends", unknown(`{"clusterName":"dev","batchIdleDuration":"0s"}`), []string{"batchIdleDuration: Invalid value", "must be positive"}},
		{"an initialization that is shorter than any", unknown(`{"clusterName":"dev","initializationTimeout":"10m"}`), []string{"initializationTimeout: Invalid value", "15m"}},
		{"a limit of all pools below zero", unknown(`{"clusterName":"dev","limits":{"cpu":-1}}`), []string{`limits[cpu]: Invalid value: "-1"`, "must not be negative"}},
		{"a limit of all pools of a misspelt resource", unknown(`{"clusterName":"dev","limits":{"cpus":1}}`), []string{`limits[cpus]: Unsupported value: "cpus"`, `"cpu"`, `"nodes"`}},
		{"a limit of all pools of what is no resource", unknown(`{"clusterName":"dev","limits":{"nvidia.com/":1}}`), []string{`limits[nvidia.com/]: Invalid value`}},
		{"a limit of all pools that is no quantity", unknown(`{"clusterName":"dev","limits":{"memory":"4 TB"}}`), []string{"quantities must match"}},
		{"a registration that takes for ever", unknown(`{"clusterName":"dev","registrationTimeout":"25h"}`), []string{"registrationTimeout: Invalid value", "24h"}},
		{
			"a batch that ends before it can settle", unknown(`{"clusterName":"dev","batchIdleDuration":"4s"}`),
			[]string{"batchMaxDuration: Invalid value", "must not be below batchIdleDuration"},
		},
		{"no claim may be in flight", unknown(`{"clusterName":"dev","maxClaimsInFlight":0}`), []string{"maxClaimsInFlight: Invalid value: 0"}},
		{"no node may end", unknown(`{"clusterName":"dev","maxTerminationsPerMinute":0}`), []string{"maxTerminationsPerMinute: Invalid value: 0", "disruptionDryRun"}},
		{"a port alone", unknown(`{"clusterName":"dev","metricsBindAddress":"8080"}`), []string{`metricsBindAddress: Invalid value: "8080"`, `":8080"`}},
		{"a name to listen at", unknown(`{"clusterName":"dev","metricsBindAddress":"localhost:8080"}`), []string{`metricsBindAddress: Invalid value: "localhost:8080"`}},
		{"no such port", unknown(`{"clusterName":"dev","metricsBindAddress":":80800"}`), []string{`metricsBindAddress: Invalid value: ":80800"`}},
		{"a percentage instead of a fraction", unknown(`{"clusterName":"dev","vmMemoryOverheadPercent":7.5}`), []string{"vmMemoryOverheadPercent: Invalid value: 7.5", "fraction"}},
		{"fewer interfaces than none", unknown(`{"clusterName":"dev","reservedENIs":-1}`), []string{"reservedENIs: Invalid value: -1"}},
		{"an unknown policy for minValues", unknown(`{"clusterName":"dev","minValuesPolicy":"Relaxed"}`), []string{`minValuesPolicy: Unsupported value: "Relaxed"`, `"Strict"`, `"BestEffort"`}},
		{"an unknown policy", unknown(`{"clusterName":"dev","preferencePolicy":"respect"}`), []string{`preferencePolicy: Unsupported value: "respect"`, `"Respect"`, `"Ignore"`}},
		{
			"several mistakes are told at once", unknown(`{"maxClaimsInFlight":-1,"preferencePolicy":"x"}`),
			[]string{"clusterName", "maxClaimsInFlight", "preferencePolicy"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DecodeArgs(tc.args)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if !strings.HasPrefix(err.Error(), "Provision arguments: ") {
				t.Errorf("error does not say whose arguments: %v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
