package globalsettings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// What Karpenter 0.31's chart writes says nothing that isn't so here anyway, but for the cluster and its queue.
const shipped = `
apiVersion: v1
kind: ConfigMap
metadata: {name: karpenter-global-settings, namespace: karpenter, labels: {helm.sh/chart: karpenter-v0.31.0}}
data:
  aws.assumeRoleARN: ""
  aws.assumeRoleDuration: ""
  aws.clusterCABundle: ""
  aws.clusterEndpoint: ""
  aws.clusterName: shop
  aws.defaultInstanceProfile: ""
  aws.enableENILimitedPodDensity: "true"
  aws.enablePodENI: "false"
  aws.interruptionQueueName: shop-queue
  aws.isolatedVPC: "false"
  aws.reservedENIs: "0"
  aws.tags: "{}"
  aws.vmMemoryOverheadPercent: "0.075"
  batchIdleDuration: 1s
  batchMaxDuration: 10s
  featureGates.driftEnabled: "true"
`

func TestParse(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\ndata:\n"
	for name, tc := range map[string]struct {
		in       string
		want     string // as YAML
		warnings []string
		err      []string
	}{
		"as shipped": {in: shipped, want: "clusterName: shop\ninterruptionQueue: shop-queue\n"},
		"everything of use": {
			in: head + "  aws.clusterName: shop\n  aws.clusterEndpoint: https://api\n  aws.clusterCABundle: YQ==\n  aws.defaultInstanceProfile: nodes\n" +
				"  aws.vmMemoryOverheadPercent: '0.1'\n  aws.reservedENIs: '2'\n  batchIdleDuration: 3s\n  batchMaxDuration: 1m\n",
			want: "batchIdleDuration: 3s\nbatchMaxDuration: 1m\nclusterCABundle: YQ==\nclusterEndpoint: https://api\nclusterName: shop\ndefaultInstanceProfile: nodes\n" +
				"reservedENIs: 2\nvmMemoryOverheadPercent: 0.1\n",
		},
		"an overhead of nothing is none that is missing": {in: head + "  aws.vmMemoryOverheadPercent: '0'\n", want: "vmMemoryOverheadPercent: 0\n"},
		"without effect": {
			in: head + "  aws.assumeRoleARN: arn\n  aws.enableENILimitedPodDensity: 'false'\n  aws.isolatedVPC: 'true'\n  aws.nodeNameConvention: resource-name\n" +
				"  aws.tags: '{\"team\": \"a\"}'\n  aws.tags.owner: b\n  featureGates.driftEnabled: 'false'\n  new: x\n",
			want: "{}\n",
			warnings: []string{"aws.assumeRoleARN: Dovetail has", "aws.enableENILimitedPodDensity: has no effect: set", "aws.isolatedVPC: has", "aws.nodeNameConvention: has",
				"aws.tags: has no effect: write", "aws.tags.owner: has", "featureGates.driftEnabled: has", "new: isn't a setting"},
		},
		"wrong": {
			in: head + "  aws.vmMemoryOverheadPercent: NaN\n  aws.reservedENIs: '-1'\n  aws.enablePodENI: maybe\n  aws.tags: '[]'\n  batchIdleDuration: '1'\n  batchMaxDuration: 0s\n",
			err: []string{`data[aws.vmMemoryOverheadPercent]: Invalid value: "NaN": must be a fraction`, "data[aws.reservedENIs]", "data[aws.enablePodENI]", "data[aws.tags]",
				"data[batchIdleDuration]", "data[batchMaxDuration]"},
		},
		"another kind":   {in: "apiVersion: v1\nkind: Secret\n", err: []string{"Secret of v1"}},
		"nothing":        {in: "", err: []string{"not a ConfigMap"}},
		"not YAML":       {in: "{", err: []string{"not a ConfigMap"}},
		"a list":         {in: "[]", err: []string{"not a ConfigMap"}},
		"numbers":        {in: head + "  aws.reservedENIs: 1\n", want: "reservedENIs: 1\n"},
		"as binary data": {in: "apiVersion: v1\nkind: ConfigMap\nbinaryData: {a: YQ==}\n", err: []string{"binaryData"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := Parse([]byte(tc.in))
			if len(tc.err) > 0 {
				if err == nil {
					t.Fatalf("there is no error, but %+v", got)
				}
				for _, part := range tc.err {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("the error is %q, want %q in it", err, part)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(text)); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if len(warnings) != len(tc.warnings) {
				t.Fatalf("the warnings are %q, want %q", warnings, tc.warnings)
			}
			for i, part := range tc.warnings {
				if !strings.HasPrefix(warnings[i], part) {
					t.Errorf("warning %q doesn't start with %q", warnings[i], part)
				}
			}
		})
	}
}

// Whatever the ConfigMap is: no setting is taken from one that is wrong, and what is taken is a setting of ours.
func FuzzParse(f *testing.F) {
	f.Add([]byte(shipped))
	f.Add([]byte("apiVersion: v1\nkind: ConfigMap\ndata: {aws.tags: '{', batchIdleDuration: 1ns, aws.vmMemoryOverheadPercent: 1e-400}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, warnings, err := Parse(raw)
		if err != nil && (s != Settings{} || warnings != nil) {
			t.Errorf("%v, and yet %+v %q", err, s, warnings)
		}
		if p := s.VMMemoryOverheadPercent; p != nil && !(*p >= 0 && *p < 1) || s.ReservedENIs < 0 {
			t.Errorf("%+v", s)
		}
	})
}
