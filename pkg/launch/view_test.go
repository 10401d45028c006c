package launch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Until a driver has registered, a node has the attachments it was planned with.
func TestExpectedAttachments(t *testing.T) {
	for _, tc := range []struct {
		name           string
		shown, planned map[string]int64
		drivers        []string
		want           map[string]int64
	}{
		{name: "no CSINode yet", planned: map[string]int64{"ebs": 25}, want: map[string]int64{"ebs": 25}},
		{name: "another driver is there", planned: map[string]int64{"ebs": 25}, shown: map[string]int64{"efs": 7}, drivers: []string{"efs"},
			want: map[string]int64{"ebs": 25, "efs": 7}},
		{name: "the driver is there and has its own number", planned: map[string]int64{"ebs": 25}, shown: map[string]int64{"ebs": 20}, drivers: []string{"ebs"},
			want: map[string]int64{"ebs": 20}},
		{name: "the driver is there and has no limit", planned: map[string]int64{"ebs": 25}, drivers: []string{"ebs"}},
		{name: "nothing was planned", shown: map[string]int64{"efs": 7}, drivers: []string{"efs"}, want: map[string]int64{"efs": 7}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, expected(tc.shown, tc.planned, tc.drivers)); diff != "" {
				t.Errorf("attachments (-want +got):\n%s", diff)
			}
		})
	}
}
