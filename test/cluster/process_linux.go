package cluster

import "syscall"

// processAttributes puts the child into its own process group, so that ctrl-C at the terminal reaches only the parent, which then
// stops its children in order. It also has the kernel kill the child when the parent dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
