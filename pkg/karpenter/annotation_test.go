package karpenter

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

func TestAnnotationRoundTrip(t *testing.T) {
	small := *testClaim("c").LaunchBatch
	big := small
	big.Request = []byte(strings.Repeat(`{"InstanceType":"m5.large","SubnetId":"subnet-0123456789"},`, 500))
	for i := range 1000 {
		big.Claims = append(big.Claims, fmt.Sprintf("default-%05d", i))
	}
	for name, tc := range map[string]struct {
		batch capacity.LaunchBatch
		plain bool
	}{
		"a short launch batch can be read by a person":             {small, true},
		"the request of a launch batch of thousands is compressed": {big, false},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := EncodeAnnotation(objects.AnnotationLaunchBatch, &tc.batch)
			if err != nil {
				t.Fatal(err)
			}
			if plain := strings.HasPrefix(value, "{"); plain != tc.plain {
				t.Errorf("plain is %v, want %v: %.60s", plain, tc.plain, value)
			}
			if len(value) > 32<<10 {
				t.Errorf("value has %d bytes: too long for every claim of a launch batch to carry", len(value))
			}
			var got capacity.LaunchBatch
			if err := decodeAnnotation(objects.AnnotationLaunchBatch, value, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.batch, got); diff != "" {
				t.Errorf("launch batch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnnotationThatDoesNotFitIsAnErrorBeforeAnythingIsLaunched(t *testing.T) {
	noise := make([]byte, 400<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	_, err := EncodeAnnotation(objects.AnnotationLaunchBatch, capacity.LaunchBatch{Request: noise})
	if err == nil || !strings.Contains(err.Error(), objects.AnnotationLaunchBatch) {
		t.Errorf("error %v, want one that names the annotation", err)
	}
}

func TestDecodeAnnotationReportsWhatItDoesNotKnow(t *testing.T) {
	for name, tc := range map[string]struct{ value, want string }{
		"empty":                         {"", "EOF"},
		"not JSON":                      {"hello", "invalid character"},
		"another type":                  {`["a"]`, "cannot unmarshal"},
		"a field of another version":    {`{"token":"t","shards":3}`, `unknown field "shards"`},
		"a second value":                {`{"token":"t"} {}`, "more data after"},
		"compressed, but not base64":    {"gzip:***", "decompressing"},
		"compressed, but not gzip":      {"gzip:" + base64.StdEncoding.EncodeToString([]byte("hello, world")), "decompressing"},
		"an unknown way of compressing": {"zstd:AAAA", "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			err := decodeAnnotation(objects.AnnotationLaunchBatch, tc.value, &capacity.LaunchBatch{})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), objects.AnnotationLaunchBatch) {
				t.Errorf("error %v, want one with %q and the annotation's name", err, tc.want)
			}
		})
	}
}

func FuzzClaimAnnotations(f *testing.F) {
	batch, err := EncodeAnnotation(objects.AnnotationLaunchBatch, capacity.LaunchBatch{Token: "t", Request: []byte(strings.Repeat("abc", 4000))})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(batch, `[{"pod":{"uid":"u","Namespace":"n","Name":"p"},"class":"c","order":3}]`, `{"cpu":4000}`)
	f.Add(`{"token":"t"}`, `[{"order":1e99}]`, `{"cpu":"4"}`)
	f.Add("gzip:H4sI", "null", "[]")
	f.Fuzz(func(t *testing.T, batch, planned, largest string) {
		nc := testNodeClaim(t)
		nc.UID = types.UID("u")
		nc.Annotations = map[string]string{objects.AnnotationLaunchBatch: batch, objects.AnnotationPlannedPods: planned, objects.AnnotationLargestCapacity: largest}
		c := ClaimOf(nc, classKind)
		if c.LaunchBatch == nil && c.Unreadable == "" {
			t.Error("a launch batch is recorded, cannot be read, and nobody is told")
		}
		if len(c.Annotations) != 0 {
			t.Errorf("the launch record would get onto the Node: %v", c.Annotations)
		}
	})
}
