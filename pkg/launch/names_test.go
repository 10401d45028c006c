package launch

import (
	"math/rand"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A claim's name is a valid object name and label value, whatever its pool's name.
func TestRandomNames(t *testing.T) {
	m := &namer{names: rand.New(rand.NewSource(1))}
	long := strings.Repeat("a", 53)
	for prefix, want := range map[string]string{
		"default": "default-", "provisioner_default": "provisioner-default-", "args_a.b": "args-a.b-",
		long + "-b": long + "-", long + "bcdefghijk": long + "b-",
	} {
		got := m.randomName(prefix)
		if !strings.HasPrefix(got, want) || len(got) != len(want)+8 {
			t.Errorf("a claim of pool %s is called %s, want %s and eight letters", prefix, got, want)
		}
		if problems := append(validation.IsDNS1123Subdomain(got), validation.IsValidLabelValue(got)...); len(problems) > 0 {
			t.Errorf("%s: %v", got, problems)
		}
	}
}
