package ec2

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a closed simulator leaves a goroutine behind. Closing cuts the clients' connections, so theirs end,
// too.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
