package binder

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func decodeArgs(raw string) (*Args, error) { return DecodeArgs(&runtime.Unknown{Raw: []byte(raw)}) }

func TestDecodeArgs(t *testing.T) {
	minutes := func(n int) *metav1.Duration {
		return &metav1.Duration{Duration: time.Duration(n) * time.Minute}
	}
	for _, tc := range []struct {
		name, raw string
		want      Args
		earliest  capacity.BindTime
	}{
		{"nothing", ``, Args{EarliestBinding: "Early", GateDeadline: minutes(25), LateAfter: minutes(3)}, capacity.BindEarly},
		{"an empty object", `{}`, Args{EarliestBinding: "Early", GateDeadline: minutes(25), LateAfter: minutes(3)}, capacity.BindEarly},
		{"everything", "apiVersion: config.dovetail.sh/v1alpha1\nkind: BinderArgs\nearliestBinding: Initialized\ngateDeadline: 1h\nlateAfter: 10m\n", Args{
			TypeMeta: metav1.TypeMeta{APIVersion: "config.dovetail.sh/v1alpha1", Kind: "BinderArgs"}, EarliestBinding: "Initialized", GateDeadline: minutes(60), LateAfter: minutes(10),
		}, capacity.BindInitialized},
		{"the version of before the first release", "apiVersion: config.dovetail.sh/v1\nkind: BinderArgs\n", Args{
			TypeMeta: metav1.TypeMeta{APIVersion: "config.dovetail.sh/v1", Kind: "BinderArgs"}, EarliestBinding: "Early", GateDeadline: minutes(25), LateAfter: minutes(3),
		}, capacity.BindEarly},
		{"when registered", `{"earliestBinding":"Registered"}`, Args{EarliestBinding: "Registered", GateDeadline: minutes(25), LateAfter: minutes(3)}, capacity.BindRegistered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decodeArgs(tc.raw)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" || got.Earliest() != tc.earliest {
				t.Errorf("earliest %v; arguments (-want +got):\n%s", got.Earliest(), diff)
			}
		})
	}
}

func TestInvalidArgs(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":1}`:               `Binder arguments: unknown field "a"`,
		`{"GateDeadline":"1m"}`: `unknown field "GateDeadline"`,
		`{"apiVersion":"config.dovetail.sh/v1alpha1","kind":"ProvisionArgs"}`: `apiVersion: Unsupported value: "config.dovetail.sh/v1alpha1/ProvisionArgs"`,
		`{"earliestBinding":"Never"}`:                                         `earliestBinding: Unsupported value: "Never"`,
		`{"gateDeadline":"59s"}`:                                              "gateDeadline: Invalid value",
		`{"gateDeadline":"25h"}`:                                              "gateDeadline: Invalid value",
		`{"gateDeadline":5}`:                                                  "gateDeadline",
		`{"lateAfter":"0s"}`:                                                  "lateAfter: Invalid value",
		`{"lateAfter":"26m"}`:                                                 "lateAfter: Invalid value",
		`{"gateDeadline":"2h","lateAfter":"2h0m0.1s"}`:                        "lateAfter: Invalid value",
	} {
		if got, err := decodeArgs(raw); err == nil {
			t.Errorf("%s: accepted as %+v", raw, got)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: refused with %q, want %q", raw, err, want)
		}
	}
}

func TestContradictingArgs(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`: "", `{"earliestBinding":"Registered"}`: "", `{"gateDeadline":"30m"}`: "gateDeadline", `{"lateAfter":"4m"}`: "lateAfter",
	} {
		a, err := decodeArgs(raw)
		if err != nil {
			t.Fatal(err)
		}
		b, err := decodeArgs("")
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Contradicts(b); got != want {
			t.Errorf("%s: %q differs, want %q", raw, got, want)
		}
	}
}

// FuzzDecodeArgs checks that arguments that are accepted can be encoded and decoded again without a change.
func FuzzDecodeArgs(f *testing.F) {
	for _, raw := range []string{``, `{}`, `{"earliestBinding":"Registered","gateDeadline":"1h","lateAfter":"1m"}`, "gateDeadline: 2m\nlateAfter: 1s\n", `null`, `[]`} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, err := DecodeArgs(&runtime.Unknown{Raw: raw})
		if err != nil {
			return
		}
		text, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeArgs(&runtime.Unknown{Raw: text})
		if diff := cmp.Diff(args, again); err != nil || diff != "" {
			t.Fatalf("%s is not the same when it is read again (%v): %s", text, err, diff)
		}
	})
}
