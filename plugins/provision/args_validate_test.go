package provision

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// testBundle is a CA in the form of clusterCABundle.
var testBundle = func() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}()

func TestInvalidArgs(t *testing.T) {
	for _, tc := range []struct{ name, field, value, want string }{
		{"a region that is a zone", "region", `"us-west-2a"`, `region: Invalid value: "us-west-2a"`},
		{"an endpoint without scheme", "clusterEndpoint", `"example.com"`, "clusterEndpoint: Invalid value"},
		{"an endpoint that isn't secure", "clusterEndpoint", `"http://example.com"`, "clusterEndpoint: Invalid value"},
		{"a CA that isn't base64", "clusterCABundle", `"-----BEGIN"`, "clusterCABundle: Invalid value: must be base64"},
		{"a CA that isn't PEM", "clusterCABundle", `"Y2E="`, "clusterCABundle: Invalid value: must hold certificates"},
		{"a CA that is a key", "clusterCABundle", `"` + base64.StdEncoding.EncodeToString([]byte("-----BEGIN KEY-----\nYQ==\n-----END KEY-----\n")) + `"`, "clusterCABundle: Invalid value: must hold certificates"},
		{"a network that is an address", "clusterCIDR", `"10.0.0.1"`, "clusterCIDR: Invalid value"},
		{"a queue by its URL", "interruptionQueue", `"https://sqs.us-west-2.amazonaws.com/1/q"`, "interruptionQueue: Invalid value"},
		{"the queue that the shipped file has", "interruptionQueue", `"Dovetail-CHANGE-ME"`, `interruptionQueue: Invalid value: "Dovetail-CHANGE-ME"`},
		{"a profile by its ARN", "defaultInstanceProfile", `"arn:aws:iam::1:instance-profile/p"`, "defaultInstanceProfile: Invalid value"},
		{"pools that are no list", "nodePools", `{}`, "nodePools"},
		{"a pool with a field of an object", "nodePools", `[{"metadata":{"name":"x"},"spec":{}}]`, `unknown field "nodePools[0].metadata"`},
		{"classes that are no list", "ec2NodeClasses", `"x"`, "ec2NodeClasses"},
		{"a selector with another operator", "nodePoolSelector", `{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`, "nodePoolSelector: Invalid value"},
		{"a selector with a misspelt field", "nodePoolSelector", `{"matchLabel":{"a":"b"}}`, `unknown field "nodePoolSelector.matchLabel"`},
		{"namespaces by another operator", "namespaceSelector", `{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`, `namespaceSelector.matchExpressions[0].operator: Invalid value: "Gt"`},
		{"namespaces by no label", "namespaceSelector", `{"matchLabels":{"a b":"c"}}`, `namespaceSelector.matchLabels: Invalid value: "a b"`},
		{"namespaces in a list without values", "namespaceSelector", `{"matchExpressions":[{"key":"a","operator":"In"}]}`, "namespaceSelector.matchExpressions[0].values: Required value"},
		{"namespaces by a misspelt field", "namespaceSelector", `{"matchLabel":{"a":"b"}}`, `unknown field "namespaceSelector.matchLabel"`},
		{"a surcharge below zero", "nodeSurchargeDollarsPerHour", `-0.1`, "nodeSurchargeDollarsPerHour: Invalid value: -0.1"},
		{"a surcharge below zero by its old name", "nodeSurcharge", `-0.1`, "nodeSurchargeDollarsPerHour: Invalid value: -0.1"},
		{"a surcharge by both names", "nodeSurcharge", `0.1,"nodeSurchargeDollarsPerHour":0.2`, "nodeSurcharge: Forbidden"},
		{"a family for nothing", "priceFactors", `{"m6g":0}`, "priceFactors[m6g]: Invalid value: 0"},
		{"a type instead of a family", "priceFactors", `{"m6g.large":1}`, "priceFactors[m6g.large]: Invalid value"},
		{"a commitment without a name", "commitments", `[{"dollarsPerHour":1,"rateFactor":0.7}]`, "commitments[0].name: Required value"},
		{"a commitment whose name is no label", "commitments", `[{"name":"My plan","dollarsPerHour":1,"rateFactor":0.7}]`, `commitments[0].name: Invalid value: "My plan"`},
		{"two commitments of one name", "commitments", `[{"name":"a","dollarsPerHour":1,"rateFactor":0.7},{"name":"a","dollarsPerHour":2,"rateFactor":0.7}]`, `commitments[1].name: Duplicate value: "a"`},
		{"a commitment of nothing", "commitments", `[{"name":"a","rateFactor":0.7}]`, "commitments[0].dollarsPerHour: Invalid value: 0"},
		{"a commitment below zero", "commitments", `[{"name":"a","dollarsPerHour":-1,"rateFactor":0.7}]`, "commitments[0].dollarsPerHour: Invalid value: -1"},
		{"a commitment of too much", "commitments", `[{"name":"a","dollarsPerHour":1e7,"rateFactor":0.7}]`, "commitments[0].dollarsPerHour: Invalid value"},
		{"a commitment without rates", "commitments", `[{"name":"a","dollarsPerHour":1}]`, "commitments[0].rateFactor: Invalid value: 0"},
		{"a commitment by its discount in percent", "commitments", `[{"name":"a","dollarsPerHour":1,"rateFactor":28}]`, "commitments[0].rateFactor: Invalid value: 28"},
		{"a commitment for a type", "commitments", `[{"name":"a","dollarsPerHour":1,"rateFactor":1,"instanceFamilies":["m5","m5.large"]}]`, `commitments[0].instanceFamilies[1]: Invalid value: "m5.large"`},
		{"a commitment for a family twice", "commitments", `[{"name":"a","dollarsPerHour":1,"rateFactor":1,"instanceFamilies":["m5","m5"]}]`, `commitments[0].instanceFamilies[1]: Duplicate value: "m5"`},
		{"a commitment with a misspelt field", "commitments", `[{"name":"a","dollars":1}]`, `unknown field "commitments[0].dollars"`},
		{"a name that is no label", "name", `"Red","nodePoolSelector":{}`, `name: Invalid value: "Red"`},
		{"a name without a selector", "name", `"red"`, "nodePoolSelector: Required value: with a name"},
		{"a name and pools of the arguments", "name", `"red","nodePoolSelector":{},"nodePools":[{"name":"x"}]`, "nodePools: Forbidden: with a name"},
		{"a name and classes of the arguments", "name", `"red","nodePoolSelector":{},"ec2NodeClasses":[{"name":"x"}]`, "ec2NodeClasses: Forbidden: with a name"},
		{"a plugin without name", "simulationDenyList", `[""]`, "simulationDenyList[0]: Required value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DecodeArgs(&runtime.Unknown{Raw: []byte(`{"clusterName":"dev","` + tc.field + `":` + tc.value + `}`)})
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("refused with %q, want %q", err, tc.want)
			}
		})
	}
}

func TestName(t *testing.T) {
	args, err := DecodeArgs(&runtime.Unknown{Raw: []byte(`{"clusterName":"dev","name":"red","nodePoolSelector":{"matchLabels":{"team":"red"}}}`)})
	if err != nil || args.Name != "red" {
		t.Errorf("arguments %+v, %v", args, err)
	}
}

// Every field belongs to each profile or to the whole process; profiles may not differ in the latter.
func TestContradictingArgs(t *testing.T) {
	decode := func(more string) *Args {
		args, err := DecodeArgs(&runtime.Unknown{Raw: []byte(`{"clusterName":"dev"` + more + `}`)})
		if err != nil {
			t.Fatal(err)
		}
		return args
	}
	for more, want := range map[string]string{
		``: "", `,"preemptFirst":true`: "", `,"nodePools":[{"name":"a","spec":{}}]`: "", `,"ec2NodeClasses":[{"name":"a","spec":{}}]`: "",
		`,"nodePoolSelector":{}`: "", `,"simulationDenyList":["x"]`: "", `,"apiVersion":"config.dovetail.sh/v1alpha1","kind":"ProvisionArgs"`: "",
		`,"region":"eu-west-1"`: "region", `,"batchIdleDuration":"51ms"`: "batchIdleDuration", `,"vmMemoryOverheadPercent":0.1`: "vmMemoryOverheadPercent",
		`,"priceFactors":{"m5":2}`: "priceFactors", `,"commitments":[{"name":"a","dollarsPerHour":1,"rateFactor":1}]`: "commitments", `,"maxClaimsInFlight":999`: "maxClaimsInFlight", `,"preferencePolicy":"Ignore"`: "preferencePolicy", `,"namespaceSelector":{}`: "namespaceSelector", `,"minValuesPolicy":"BestEffort"`: "minValuesPolicy",
		`,"batchIdleDuration":"300ms"`: "", // the default
		`,"limits":{"cpu":1}`:          "limits", `,"limits":{}`: "",
	} {
		if got := decode(more).Contradicts(decode("")); got != want {
			t.Errorf("{%s}: %q differs, want %q", strings.TrimPrefix(more, ","), got, want)
		}
	}
	fields := map[string]bool{"apiVersion": true, "kind": true}
	for f := range reflect.TypeFor[Args]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = true
	}
	for name := range ofProfile {
		if !fields[name] {
			t.Errorf("%s is no field", name)
		}
	}
}

// FuzzDecodeArgs checks that arguments that are accepted can be encoded and decoded again without a change.
func FuzzDecodeArgs(f *testing.F) {
	for _, raw := range []string{
		``, `{}`, `{"clusterName":"dev"}`, "clusterName: dev\nregion: us-west-2\n", `{"clusterName":"dev","nodePools":[{"name":"a","spec":{"x":[1,2.5,null]}}]}`,
		`{"clusterName":"dev","batchIdleDuration":"1h","batchMaxDuration":"1h1m","priceFactors":{"m5":1e3},"nodePoolSelector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}`,
		`{"clusterName":"dev","nodeSurcharge":1e308,"simulationDenyList":[],"clusterCIDR":"fd00::/108"}`, `[]`, `"x"`, `null`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, err := DecodeArgs(&runtime.Unknown{Raw: raw})
		if err != nil {
			return
		}
		text, err := json.Marshal(args)
		if err != nil {
			t.Fatalf("accepted, but can't be written: %v", err)
		}
		again, err := DecodeArgs(&runtime.Unknown{Raw: text})
		if err != nil {
			t.Fatalf("written as %s, which is refused: %v", text, err)
		}
		if name := args.Contradicts(again); name != "" || len(again.NodePools) != len(args.NodePools) {
			t.Fatalf("%s is not the same when it is read again: %s", name, cmp.Diff(args, again))
		}
	})
}
