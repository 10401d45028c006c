package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/configz"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/store"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// profileOf returns a profile with these arguments, besides the cluster's name.
func profileOf(t *testing.T, name, args, binding string) profile {
	t.Helper()
	p := profile{config: schedulerapi.KubeSchedulerProfile{SchedulerName: name}}
	var err error
	if p.args, err = provision.DecodeArgs(&runtime.Unknown{Raw: []byte("clusterName: dev\n" + args)}); err != nil {
		t.Fatal(err)
	}
	if p.binder, err = binder.DecodeArgs(&runtime.Unknown{Raw: []byte(binding)}); err != nil {
		t.Fatal(err)
	}
	return p
}

func emptyStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.New(&rest.Config{Host: "https://127.0.0.1:1"}, nodeclass.Kind, store.Sources{}, events.NewFakeRecorder(1), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const pool = `
nodePools:
  - name: main
    spec:
      weight: 3
      template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: main}, requirements: []}}
`

// An error in a profile's pools stops the start, with the path in its arguments.
func TestPoolsOfProfilesAreRead(t *testing.T) {
	for _, tc := range []struct {
		name     string
		profiles []profile
		want     string
	}{
		{"nothing", []profile{profileOf(t, "x", "", "")}, ""},
		{"pools and a selector", []profile{profileOf(t, "x", pool+"nodePoolSelector: {matchLabels: {team: a}}", "")}, ""},
		{"two profiles with the same pool", []profile{profileOf(t, "x", pool, ""), profileOf(t, "y", pool, "")}, ""},
		{"a field out of bounds", []profile{profileOf(t, "x", "", ""), profileOf(t, "y", strings.Replace(pool, "weight: 3", "weight: 101", 1), "")},
			`profile "y": Provision arguments: nodePools[0].spec.weight: Invalid value: 101`},
		{"a field that there isn't", []profile{profileOf(t, "x", strings.Replace(pool, "weight: 3", "wieght: 3", 1), "")},
			`profile "x": Provision arguments: nodePools[0].spec.wieght: Forbidden: there is no such field`},
		{"a class of nothing", []profile{profileOf(t, "x", "ec2NodeClasses: [{name: main}]", "")}, `profile "x": Provision arguments: ec2NodeClasses[0].spec: Required value`},
		{"two profiles with other pools of one name", []profile{profileOf(t, "x", pool, ""), profileOf(t, "y", strings.Replace(pool, "weight: 3", "weight: 4", 1), "")},
			`profiles "x" and "y" define nodePools "main" differently`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := pools(emptyStore(t), onAWS(), tc.profiles); err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}

func TestProfilesFitTogether(t *testing.T) {
	for _, tc := range []struct {
		name   string
		others []profile
		p      profile
		want   string
	}{
		{"alone", nil, profileOf(t, "x", "", ""), ""},
		{"a registration that pods don't wait for", nil, profileOf(t, "x", "registrationTimeout: 21m", ""),
			`Provision arguments: registrationTimeout: Invalid value: "21m0s": must not be above 20m0s: pods wait 25m0s for a node (Binder's gateDeadline), 5m0s of which are for the launch`},
		{"pods that wait for it", nil, profileOf(t, "x", "registrationTimeout: 55m", "gateDeadline: 1h"), ""},
		{"another region", []profile{profileOf(t, "x", "region: us-west-2", "")}, profileOf(t, "y", "region: us-east-1", ""),
			`Provision arguments: region: Invalid value: it applies to the whole process, and profile "x" has another value`},
		{"another patience", []profile{profileOf(t, "x", "", "")}, profileOf(t, "y", "", "gateDeadline: 30m"),
			`Binder arguments: gateDeadline: Invalid value: it applies to the whole process, and profile "x" has another value`},
		{"what each has for itself", []profile{profileOf(t, "x", "", "")}, profileOf(t, "y", "preemptFirst: true\nnodePoolSelector: {}", "earliestBinding: Registered"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := tc.p.fits(tc.others); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}

// The arguments with their defaults, and the state at the time of the request.
func TestEffectiveValues(t *testing.T) {
	configz.Delete(effectiveKey) // left by another test
	p := profileOf(t, "x", "ec2NodeClasses: [{name: main, spec: {userData: secret}}]", "earliestBinding: Registered")
	var problem error
	err := publish(t.Context(), []profile{p}, liveState{
		problem: func() error { return problem }, cloud: func() error { return errors.New("no prices") },
		pools: func() []*capacity.Pool {
			return []*capacity.Pool{{Name: "a", NodeClass: "c", Weight: 3, Schedulers: []string{"x"}, Unready: "broken", Types: make([]*capacity.InstanceType, 2)}}
		},
		claims: func() []*capacity.Claim {
			return []*capacity.Claim{{}, {Launched: true}, {Launched: true, Registered: true, Initialized: true}}
		},
		ledger: func() ledger.Summary { return ledger.New().Summary() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { configz.Delete(effectiveKey) })
	mux := http.NewServeMux()
	configz.InstallHandler(mux)
	problem = errors.New("claims can't be read") // from now on
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/configz", nil))
	var all map[string]effective
	if err := json.Unmarshal(answer.Body.Bytes(), &all); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	want := effective{
		TypeMeta: metav1.TypeMeta{APIVersion: "config.dovetail.sh/v1alpha1", Kind: "Effective"},
		Profiles: []effectiveProfile{{SchedulerName: "x", Provision: p.args, Binder: p.binder}}, Problem: problem.Error(), Cloud: "no prices",
		Pools:  []effectivePool{{Name: "a", NodeClass: "c", Weight: 3, Schedulers: []string{"x"}, Unready: "broken", InstanceTypes: 2}},
		Claims: claimCount{All: 3, Launched: 2, Registered: 1, Initialized: 1}, Ledger: ledger.Summary{Pods: map[string]int{}},
	}
	if diff := cmp.Diff(want, all["dovetail"]); diff != "" {
		t.Errorf("/configz (-want +got):\n%s", diff)
	}
	brief, err := json.Marshal(withoutSpecs([]effectiveProfile{{Provision: p.args}}))
	if err != nil || strings.Contains(string(brief), "secret") || !strings.Contains(string(brief), `"ec2NodeClasses":[{"name":"main"}]`) {
		t.Errorf("in the log: %s, %v", brief, err)
	}
	if len(p.args.EC2NodeClasses[0].Spec) == 0 {
		t.Error("the arguments themselves were changed")
	}
}

// The classes of pods have the default constraints of their scheduler's profile.
func TestDefaultSpreadConstraintsAreOfTheClass(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}), 0)
	p := profileOf(t, "spreads", "", "")
	p.config.PluginConfig = []schedulerapi.PluginConfig{{Name: "PodTopologySpread", Args: &schedulerapi.PodTopologySpreadArgs{DefaultingType: schedulerapi.ListDefaulting,
		DefaultConstraints: []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule},
			{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway}}}}}
	d := newDovetail()
	d.classes = pending.NewClasses(f)
	d.binding([]profile{p}, f)
	f.Start(t.Context().Done())
	f.WaitForCacheSync(t.Context().Done())
	for name, want := range map[string]string{"spreads web": "topology.kubernetes.io/zone", "spreads other": "", "plain web": ""} {
		scheduler, app, _ := strings.Cut(name, " ")
		class, err := d.classes.Class(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c"}}}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, s := range class.Spread {
			got += s.TopologyKey
		}
		if got != want {
			t.Errorf("%s: spread over %q, want %q", name, got, want)
		}
	}
}
