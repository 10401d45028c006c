package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// binary is a program for Linux.
type binary struct {
	path, arch string
	info       *debug.BuildInfo
}

// compile builds a static program. Paths of this machine aren't part of it (-trimpath), so that the same sources give the same bytes. It writes to out how
// far it is: the first build compiles Kubernetes for the architecture, which takes minutes.
func compile(out io.Writer, root, pkg, path, arch, ldflags string) (binary, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return binary{}, fmt.Errorf("building %s: %w", pkg, err)
	}
	cmd := exec.Command(filepath.Join("hack", "build.sh"), "-trimpath", "-ldflags", ldflags, "-o", path, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		return binary{}, fmt.Errorf("building %s for linux/%s: %w\n%s", pkg, arch, err, stderr.Bytes())
	}
	return readBinary(path, arch)
}

func readBinary(path, arch string) (binary, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return binary{}, fmt.Errorf("reading the build information of %s: %w", path, err)
	}
	return binary{path: path, arch: arch, info: info}, nil
}

// setting returns a setting of the build, such as vcs.revision.
func (b binary) setting(key string) string {
	for _, s := range b.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// product is what image and SBOM say about Dovetail.
type product struct {
	version, kubernetes string
	// created is the time of everything that has one.
	created time.Time
	// licences are files for /licenses in the image, by path there.
	licences map[string][]byte
}

var (
	versionLine    = regexp.MustCompile(`(?m)^const Version = "([^"]+)"`)
	kubernetesLine = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`)
)

// productOf reads versions and licences from the sources. The time is SOURCE_DATE_EPOCH, in seconds since 1970, or 1970.
func productOf(root string) (product, error) {
	p := product{created: time.Unix(0, 0).UTC()}
	for file, into := range map[string]struct {
		line *regexp.Regexp
		text *string
	}{"pkg/version/version.go": {versionLine, &p.version}, "go.mod": {kubernetesLine, &p.kubernetes}} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return p, fmt.Errorf("reading the version: %w", err)
		}
		m := into.line.FindSubmatch(text)
		if m == nil {
			return p, fmt.Errorf("%s has no line %s", file, into.line)
		}
		*into.text = string(m[1])
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return p, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		p.created = time.Unix(seconds, 0).UTC()
	}
	modules, err := linkedModules(root)
	if err != nil {
		return p, err
	}
	p.licences, err = licenceFiles(root, modules)
	return p, err
}

// revision returns the commit that the binary was built from; empty if the go command could not determine it.
func (b binary) revision() string {
	revision := b.setting("vcs.revision")
	if revision != "" && strings.EqualFold(b.setting("vcs.modified"), "true") {
		revision += "-dirty"
	}
	return revision
}
