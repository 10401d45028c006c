//go:build unix && !linux

package cluster

import "syscall"

// processAttributes puts the child into its own process group. Only Linux can kill it when the parent is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
