package karpenter

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// bigBatch is one call for 300 nodes out of 60 types in 3 zones.
func bigBatch() *capacity.LaunchBatch {
	w := testClaim("x").LaunchBatch
	w.Offers, w.Claims = nil, nil
	for i := range 300 {
		w.Claims = append(w.Claims, fmt.Sprintf("default-%05x", i*7919))
	}
	request := `{"Type":"instant","Overrides":[`
	for i := range 60 {
		for _, zone := range "abc" {
			w.Offers = append(w.Offers, capacity.OfferKey{InstanceType: fmt.Sprintf("m%d.%dxlarge", i, i), Zone: "us-west-2" + string(zone), CapacityType: "spot"})
			request += fmt.Sprintf(`{"InstanceType":"m%d.%dxlarge","SubnetId":"subnet-0123456789abcdef%c","AvailabilityZone":"us-west-2%c"},`, i, i, zone, zone)
		}
	}
	w.Request = []byte(request + "{}]}")
	return w
}

func BenchmarkEncodeBatch(b *testing.B) {
	w, seen := bigBatch(), &Batches{}
	for b.Loop() {
		value, err := seen.Encode(w)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(value)), "bytes")
	}
}

// BenchmarkWatchedClaim measures one event of a claim in a big launch batch.
func BenchmarkWatchedClaim(b *testing.B) {
	nc, err := NodeClaimOf(testClaim("default-abc", func(c *capacity.Claim) { c.LaunchBatch = bigBatch() }), testPool("default"), &Batches{})
	if err != nil {
		b.Fatal(err)
	}
	nc.SetGroupVersionKind(NodeClaims.GroupVersionKind)
	raw, err := json.Marshal(nc)
	u := &unstructured.Unstructured{}
	if err == nil {
		err = u.UnmarshalJSON(raw)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			Decode(u, NodeClaims.New)
		}
	})
	b.Run("convert", func(b *testing.B) {
		seen := &Batches{}
		for b.Loop() {
			CachedClaimOf(nc, classKind, seen)
		}
	})
}
