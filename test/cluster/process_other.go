//go:build unix && !linux

package cluster

import (
	"errors"
	"syscall"
)

// processAttributes puts the child into its own process group. Only Linux can kill it when the parent is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

func usage(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }
