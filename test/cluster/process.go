package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child process whose output is written to a file.
type Process struct {
	Name    string
	LogPath string // stdout and stderr are appended to it

	pid    int
	exited chan struct{} // closed after the child has been waited for
	err    error         // what Wait returned; valid once exited is closed
}

// command describes what startProcess runs.
type command struct {
	name, path, log string
	args, env       []string // env nil: the environment of this process
}

// StartProcess starts a process and writes its output to the file log. The child dies when this process does. A nil env stands for
// this process's environment.
func StartProcess(name, path, log string, args, env []string) (*Process, error) {
	return startProcess(command{name: name, path: path, log: log, args: args, env: env})
}

// startProcess starts the command. The parent-death signal is tied to the thread that forked, so one goroutine forks, waits for the
// child, and stays locked to its thread for as long as the child lives.
func startProcess(c command) (*Process, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	cmd := exec.Command(c.path, c.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = c.env
	cmd.SysProcAttr = processAttributes()

	p := &Process{Name: c.name, LogPath: c.log, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	return p, nil
}

// Usage is what a process has used.
type Usage struct {
	CPU            time.Duration
	Resident, Peak int64 // bytes: now, and at most so far
}

// Usage returns what the process has used so far. It fails on systems other than Linux, and once the process has exited.
func (p *Process) Usage() (Usage, error) {
	u, err := usage(p.pid)
	if err != nil {
		return Usage{}, fmt.Errorf("reading what %s has used: %w", p.Name, err)
	}
	return u, nil
}

// Exited returns a channel that is closed once the process has exited, for whatever reason.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err returns how the process exited; nil while it runs and after exit code 0.
func (p *Process) Err() error {
	select {
	case <-p.exited:
		return p.err
	default:
		return nil
	}
}

// Kill kills the process and its group (SIGKILL) and returns when the process has exited.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// Stop asks the process to exit (SIGTERM) and kills its group if it hasn't done so within the grace period. It returns when the
// process has exited, and reports whether it did so without being killed.
func (p *Process) Stop(grace time.Duration) bool {
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		p.Kill()
		return false
	}
}

func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.exited: // another process may have this pid by now
	default:
		_ = syscall.Kill(-p.pid, s)
	}
}

// failure describes an exit for a user: the error and the last lines of the log.
func (p *Process) failure() error {
	err := p.Err()
	if err == nil {
		err = errors.New("it ended with exit code 0")
	}
	return fmt.Errorf("%s ended: %w; end of %s:\n%s", p.Name, err, p.LogPath, Tail(p.LogPath, 2000))
}

// Tail returns about the last n bytes of a file, beginning at the start of a line.
func Tail(path string, n int) []byte {
	data, err := os.ReadFile(path)
	if err != nil || len(data) <= n {
		return data
	}
	data = data[len(data)-n:]
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		data = data[i+1:]
	}
	return data
}
