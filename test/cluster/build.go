package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// LinkVersion is linked into every binary that contains Kubernetes code. Without it the binary reports v0.0.0, and treats nodes and
// API servers of a current version as newer than itself.
const LinkVersion = "v1.36.4"

// Binary names a main package of this module and the file it is built into.
type Binary struct {
	Package string // relative to the module's root, e.g. ./cmd/scheduler
	Name    string // file in bin/, e.g. dovetail-scheduler
	Race    bool   // with the race detector; the file's name gets the suffix -race
}

// Binaries of a test cluster.
var (
	ControlPlane = Binary{Package: "./test/cluster/cmd/controlplane", Name: "controlplane"}
	Scheduler    = Binary{Package: "./cmd/scheduler", Name: "dovetail-scheduler"}
)

var built = struct {
	sync.Mutex
	paths map[Binary]string
}{paths: map[Binary]string{}}

// Build builds the binary into bin/ of the module, at most once per process, and returns its path. The go command itself skips the
// work if nothing has changed.
func Build(ctx context.Context, b Binary) (string, error) {
	built.Lock()
	defer built.Unlock()
	if path, ok := built.paths[b]; ok {
		return path, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	name := b.Name
	args := []string{"build", "-ldflags", LinkFlags()}
	if b.Race {
		name += "-race"
		args = append(args, "-race")
	}
	path := filepath.Join(root, "bin", name)
	unlock, err := lockBinaries(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	defer unlock()
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", path, b.Package)...)
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); ctx.Err() != nil {
		return "", fmt.Errorf("building %s: %w", b.Package, context.Cause(ctx))
	} else if err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", b.Package, err, out.Bytes())
	}
	built.paths[b] = path
	return path, nil
}

// lockBinaries keeps other processes (test packages that run in parallel) from writing to the directory at the same time.
func lockBinaries(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory for binaries: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the directory for binaries: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking the directory for binaries: %w", err)
	}
	return func() { f.Close() }, nil
}

// LinkFlags returns the linker flags of binaries that contain Kubernetes code.
func LinkFlags() string {
	const version = "k8s.io/component-base/version."
	major, minor, _ := strings.Cut(strings.TrimPrefix(LinkVersion, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", version, LinkVersion, major, minor)
}

// ModuleRoot returns the directory of the nearest go.mod at or above the working directory.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the module's root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("looking for the module's root: no go.mod in the working directory or above it")
		}
		dir = parent
	}
}
