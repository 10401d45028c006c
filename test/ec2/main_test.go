package ec2

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a closed simulator leaves a goroutine behind. Close cuts the clients' connections, so that their goroutines end
// too.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
