package reported

import (
	"encoding/json"
	"strings"
	"testing"
)

// Two Dovetails with nodes of the same class that differ a little come to the same record, instead of writing their own in turns.
func TestWhatSeveralDiscover(t *testing.T) {
	ours := func(memory int64, cpu int64) Record {
		return Record{NodeName: "private-dns", Class: "hash", Memory: map[string]map[string]int64{"ami": {"m5.large": memory}},
			Kept: map[string]map[string]Kept{"ami": {"m5.large": {CPU: cpu, Pods: 29}}}}
	}
	text := func(l Record) string {
		raw, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	red, blue := ours(7, 100), ours(9, 200)
	blue.Memory["ami"]["c5.large"] = 5
	blue.Memory["old"] = map[string]int64{"m5.large": 1} // an image that is not in use any more
	record := text(red.With(text(blue)))
	if !strings.Contains(record, `"memory":{"ami":{"c5.large":5,"m5.large":7}}`) || strings.Contains(record, "old") {
		t.Errorf("together they are %s", record)
	}
	if merged := red.With(text(blue)).Kept["ami"]["m5.large"]; merged.CPU != 200 || merged.Pods != 29 {
		t.Errorf("kept %+v", merged)
	}
	delete(blue.Memory, "old")
	if again := text(ours(9, 200).With(record)); again != record {
		t.Errorf("the other would write %s, and has read %s", again, record)
	}
	if again := text(ours(7, 100).With(record)); again != record {
		t.Errorf("the first would write %s, and has written %s", again, record)
	}
	for _, unusable := range []string{"", "v2:", "{}"} {
		if got := text(ours(7, 100).With(unusable)); got != text(ours(7, 100)) {
			t.Errorf("with the record %q it is %s", unusable, got)
		}
	}
	of := ours(7, 100)
	if of.Class = "another"; of.With(record).Kept["ami"]["m5.large"].CPU != 100 {
		t.Errorf("what kubelets keep with another hash of the class counts: %+v", of.Kept)
	}
}
