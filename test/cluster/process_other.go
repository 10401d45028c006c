//go:build unix && !linux

package cluster

import "syscall"

// processAttributes puts the child into its own process group. Only Linux can end it when its starter is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
