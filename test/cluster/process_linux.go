package cluster

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processAttributes puts the child into its own process group, so that ctrl-C at the terminal reaches only the parent, which then
// stops its children in order. It also has the kernel kill the child when the parent dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// clockTick is the unit of the times in /proc, the same on all architectures that Go supports.
const clockTick = time.Second / 100

func usage(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name, in parentheses, may contain anything. After it, user and system time are the fields 12 and 13.
	_, after, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return u, errors.New("/proc/PID/stat is too short")
	}
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, err
		}
		u.CPU += time.Duration(n) * clockTick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		to := map[string]*int64{"VmRSS": &u.Resident, "VmHWM": &u.Peak}[name]
		if to == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return u, err
		}
		*to = kib << 10
	}
	return u, nil
}
