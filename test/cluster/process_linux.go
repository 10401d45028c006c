package cluster

import "syscall"

// processAttributes puts the child into its own process group, so that a ctrl-C at the terminal reaches the starter alone
// and the starter ends its children in order, and has the kernel kill the child when its starter dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
