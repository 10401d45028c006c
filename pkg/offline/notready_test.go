package offline

import (
	"strings"
	"testing"
)

// statusOf returns the status of an object, with these conditions and more.
func statusOf(more string, conditions ...string) string {
	var all []string
	for _, c := range conditions {
		kind, state, _ := strings.Cut(c, "=")
		all = append(all, `{type: `+kind+`, status: "`+state+`", reason: UnhealthyDependents, message: "`+kind+` says why", lastTransitionTime: "2026-11-27T08:00:00Z"}`)
	}
	return "status: {" + more + "conditions: [" + strings.Join(all, ", ") + "]}\n---\n"
}

// Nothing is bought where a cluster's own conditions say that nothing can be; what has no status can be used.
func TestPoolsThatAreNotReady(t *testing.T) {
	classWith := func(status string) string { return strings.TrimSuffix(class, "---\n") + status }
	poolWith := func(status string) string { return strings.TrimSuffix(pool("default", ""), "\n---\n") + "\n" + status }
	const subnets = "subnets: [{id: s, zone: eu-test-1a}], "
	for _, tc := range []struct{ name, objects, why string }{
		{name: "neither has a status", objects: class + pool("default", "")},
		{name: "both are ready", objects: classWith(statusOf(subnets, "Ready=True")) + poolWith(statusOf("", "Ready=True"))},
		{name: "the class isn't", objects: classWith(statusOf("subnets: [], ", "AMIsReady=True", "SubnetsReady=False", "Ready=False")) + pool("default", ""),
			why: "EC2NodeClass default isn't ready: SubnetsReady is False: SubnetsReady says why"},
		{name: "the class isn't, with subnets", objects: classWith(statusOf(subnets, "AMIsReady=False", "Ready=False")) + pool("default", ""),
			why: "EC2NodeClass default isn't ready: AMIsReady is False: AMIsReady says why"},
		{name: "the class has conditions and no subnets", objects: classWith(statusOf("", "SubnetsReady=Unknown")) + pool("default", ""), why: "EC2NodeClass default: status.subnets: there is none"},
		{name: "a condition that Ready doesn't sum up", objects: classWith(statusOf(subnets, "dovetail.sh/FieldsHonored=False", "Ready=True")) + pool("default", "")},
		{name: "the pool isn't", objects: class + poolWith(statusOf("", "ValidationSucceeded=False", "Ready=False")),
			why: "NodePool default isn't ready: ValidationSucceeded is False: ValidationSucceeded says why"},
		{name: "the pool isn't for its class, which comes from a file", objects: class + poolWith(statusOf("", "NodeClassReady=False", "Ready=False"))},
		{name: "the pool isn't for its class", objects: classWith(statusOf(subnets, "Ready=True")) + poolWith(statusOf("", "NodeClassReady=False", "Ready=False")),
			why: "NodePool default isn't ready: NodeClassReady is False: NodeClassReady says why"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(t.Context(), set(t, tc.objects+deployment("web", 1, "cpu: 1", "")), settings(t))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tc.why == "" && (len(r.Nodes) != 1 || len(r.Refused) > 0):
				t.Errorf("%d nodes, refused %v", len(r.Nodes), r.Refused)
			case tc.why != "" && (len(r.Nodes) > 0 || len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Reason, tc.why)):
				t.Errorf("%d nodes, refused %v, want %s", len(r.Nodes), r.Refused, tc.why)
			}
		})
	}
}
