package realkubelet

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Main()
	// Scenes spend most of their time waiting, so all of them run at once, however few processors there are.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
