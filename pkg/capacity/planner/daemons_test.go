package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPlanOfTaintsAndDaemons(t *testing.T) {
	dedicated := corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	tolerating := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	daemon := func(t *testing.T, requests string, change ...func(*corev1.Pod)) *capacity.DaemonSet {
		return &capacity.DaemonSet{Namespace: "kube-system", Name: "agent", Class: mustClass(t, asking("agent", requests, change...))}
	}
	runPlans(t, []planCase{
		{name: "a taint nobody tolerates", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].Taints = []corev1.Taint{dedicated}
			return v
		}, want: `
			refused 1 web: default: taint dedicated=gpu:NoSchedule is not tolerated
			`},
		{name: "tolerated", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", tolerating))
			v.Pools[0].Taints = []corev1.Taint{dedicated}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "startup taints are somebody else's", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].StartupTaints = []corev1.Taint{dedicated}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "PreferNoSchedule sends pods to another pool, if there is one", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].Taints = []corev1.Taint{{Key: "rather-not", Effect: corev1.TaintEffectPreferNoSchedule}}
			v.Pools[0].Weight = 10
			v.Pools = append(v.Pools, testPool("other"))
			return v
		}, want: `
			other on-demand c.2 : map[web:1]
			`},
		{name: "PreferNoSchedule is given up last", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].Taints = []corev1.Taint{{Key: "rather-not", Effect: corev1.TaintEffectPreferNoSchedule}}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "daemons take their room on every new node", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=900m"))
			v.DaemonSets = []*capacity.DaemonSet{daemon(t, "cpu=200m")}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			`},
		{name: "a daemon for other nodes takes nothing", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=900m"))
			v.DaemonSets = []*capacity.DaemonSet{daemon(t, "cpu=200m", on(corev1.LabelArchStable, "arm64"))}
			return v
		}, want: `
			default on-demand c.2 : map[web:2]
			`},
		{name: "a daemon's host port is taken everywhere it runs", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", hostPortOf(9100)))
			v.DaemonSets = []*capacity.DaemonSet{daemon(t, "", hostPortOf(9100), on("karpenter.k8s.aws/instance-family", "c", "r"))}
			return v
		}, want: `
			default on-demand m.2 : map[web:1]
			`},
	})
}
