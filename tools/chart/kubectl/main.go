// Command kubectl is kubectl, from the library that the real one consists of. Tests run the documentation's commands with it.
package main

import (
	"os"

	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	if cmd.NewDefaultKubectlCommand().Execute() != nil {
		os.Exit(1)
	}
}
