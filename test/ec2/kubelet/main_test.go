package kubelet

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if closed kubelets leave a goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
