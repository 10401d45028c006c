package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	in := `goos: linux
pkg: example.com/bench
cpu: some
BenchmarkFilter/plain/ledger=empty-2         	     100	         0.2464 binder-ns/node	      2793 others-ns/node
BenchmarkFilter/plain/ledger=full-2          	      43	       113.44 binder-ns/node
BenchmarkBurst
    burst_test.go:33: 67 nodes
BenchmarkBurst-2   	       1	         4.284 node-to-bound-s	         5.000 nodes
--- FAIL: BenchmarkBurst
ok  	example.com/bench	60.599s
`
	want := `cpu: some

               Filter   binder-ns/node   others-ns/node
   plain/ledger=empty            0.246             2793
    plain/ledger=full              113                 
    burst_test.go:33: 67 nodes

   Burst   node-to-bound-s   nodes
                      4.28       5
--- FAIL: BenchmarkBurst
ok  	example.com/bench	60.599s
`
	var out strings.Builder
	if err := run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestReadable(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 5: "5", 1234.56: "1235", 99.94: "99.9", 0.000088: "8.8e-05", 1.138: "1.14"} {
		if got := readable(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}
