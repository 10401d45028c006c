package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
)

var root = filepath.Join("..", "..")

// built compiles a small program in a folder of its own, as make image compiles the scheduler.
func built(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"go.mod": "module small\n\ngo 1.26\n", "main.go": "package main\n\nvar text = \"?\"\n\nfunc main() { println(text) }\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile(filepath.Join(root, "hack", "build.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "hack"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hack", "build.sh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := compile(io.Discard, dir, ".", filepath.Join(dir, "out"), "amd64", "-s -w -X main.text=linked")
	if err != nil {
		t.Fatal(err)
	}
	return b.path
}

func small(t *testing.T, path string) []binary {
	t.Helper()
	amd, err := readBinary(path, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	arm := amd // what is in it doesn't matter here, and an architecture more would have to be compiled
	arm.arch = "arm64"
	return []binary{amd, arm}
}

var testProduct = product{version: "0.1.0", kubernetes: "v1.36.4", created: time.Unix(0, 0).UTC(), licences: map[string][]byte{"LICENSE": []byte("Apache"), "example.com/m/LICENSE": []byte("MIT")}}

// The same sources in another folder, written again, are the same image.
func TestImageIsReproducible(t *testing.T) {
	first, again := built(t), built(t)
	out := t.TempDir()
	digest, err := testProduct.write(filepath.Join(out, "a"), small(t, first))
	if err != nil {
		t.Fatal(err)
	}
	second, err := testProduct.write(filepath.Join(out, "b"), small(t, again))
	if err != nil || second != digest {
		t.Errorf("written again it is %s, want %s (%v)", second, digest, err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		one, err := os.ReadFile(filepath.Join(out, "a", sbomName(arch)))
		if err != nil {
			t.Fatal(err)
		}
		if two, err := os.ReadFile(filepath.Join(out, "b", sbomName(arch))); err != nil || !bytes.Equal(one, two) {
			t.Errorf("the SBOM of %s is another one (%v)", arch, err)
		}
	}
	// And a changed program is another one.
	if err := os.WriteFile(again, append(must(os.ReadFile(again)), 0), 0o755); err != nil {
		t.Fatal(err)
	}
	if third, err := testProduct.write(filepath.Join(out, "c"), small(t, again)); err != nil || third == digest {
		t.Errorf("a changed program has the same digest %s (%v)", third, err)
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

func TestImage(t *testing.T) {
	out := t.TempDir()
	path := built(t)
	if _, err := testProduct.write(out, small(t, path)); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(out, layoutFolder))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, m.Platform.Architecture, must(os.ReadFile(path)))
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %v, want %v", platforms, want)
	}
}

func checkImage(t *testing.T, image v1.Image, arch string, program []byte) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; config.OS != "linux" || config.Architecture != arch || !slices.Equal(c.Entrypoint, []string{"/dovetail-scheduler"}) || c.User != "65532:65532" {
		t.Errorf("%s: configuration %+v", arch, config)
	}
	files := map[string][]byte{}
	modes := map[string]fs.FileMode{}
	content := mutate.Extract(image)
	defer content.Close()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], modes[h.Name] = must(io.ReadAll(r)), h.FileInfo().Mode()
	}
	if !bytes.Equal(files["dovetail-scheduler"], program) || modes["dovetail-scheduler"].Perm() != 0o755 {
		t.Errorf("%s: the program is another one, or has mode %s", arch, modes["dovetail-scheduler"])
	}
	if string(files["licenses/example.com/m/LICENSE"]) != "MIT" || len(files["sbom/"+sbomName(arch)]) == 0 {
		t.Errorf("%s: licences or SBOM are missing", arch)
	}
	authorities := x509.NewCertPool()
	n := 0
	for rest := files[rootsFile]; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		authorities.AddCert(certificate)
	}
	if n < 100 {
		t.Errorf("%s: %d certificate authorities", arch, n)
	}
}

func TestSBOM(t *testing.T) {
	b := small(t, built(t))[0]
	b.info = &debug.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "github.com/BurntSushi/toml", Version: "v1.6.0", Sum: "h1:dRaEfpa2VI55EwlIW72hMRHdWouJeRF7TPYhI+AUQjk="},
		{Path: "k8s.io/api", Version: "v0.0.0", Replace: &debug.Module{Path: "k8s.io/api", Version: "v0.36.4"}},
	}}
	data, err := testProduct.sbom(b)
	if err != nil {
		t.Fatal(err)
	}
	document, err := spdxjson.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, p := range document.Packages {
		packages = append(packages, p.PackageExternalReferences[0].Locator)
	}
	if want := []string{"pkg:golang/github.com/dovetail-scheduler/dovetail@v0.1.0", "pkg:golang/stdlib@1.26.8", "pkg:golang/github.com/BurntSushi/toml@v1.6.0", "pkg:golang/k8s.io/api@v0.36.4"}; !slices.Equal(packages, want) {
		t.Errorf("packages\n%s\nwant\n%s", strings.Join(packages, "\n"), strings.Join(want, "\n"))
	}
	sum := sha256.Sum256(must(os.ReadFile(b.path)))
	for _, i := range []int{0, 2} {
		if len(document.Packages[i].PackageChecksums) != 1 {
			t.Fatalf("%s has no checksum", packages[i])
		}
	}
	if got := document.Packages[0].PackageChecksums[0].Value; got != hex.EncodeToString(sum[:]) {
		t.Errorf("checksum %s of the program", got)
	}
	if got := document.Packages[2].PackageDownloadLocation; got != "https://proxy.golang.org/github.com/!burnt!sushi/toml/@v/v1.6.0.zip" {
		t.Errorf("downloaded from %s", got)
	}
	if n := len(document.Relationships); n != 4 {
		t.Errorf("%d relationships, want 1 that describes and 3 that depend", n)
	}
}

// What is pushed is what was built.
func TestPush(t *testing.T) {
	out := t.TempDir()
	digest, err := testProduct.write(out, small(t, built(t)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New())
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "http://") + "/team/dovetail-scheduler:0.1.0"
	var said bytes.Buffer
	if err := run([]string{"push", "--insecure", out, target}, nil, &said); err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(target, ":0.1.0") + "@" + digest + "\n"; said.String() != want {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
	tag, err := name.NewTag(target, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pulled.Digest(); err != nil || got.String() != digest {
		t.Errorf("pulled %s, want %s (%v)", got, digest, err)
	}
	for _, wrong := range [][]string{{"push", out}, {"push", "--username", "AWS", out, target}, {"push", out, "no tag"}, {"push", t.TempDir(), target}} {
		if err := run(wrong, nil, io.Discard); err == nil {
			t.Errorf("%v is no error", wrong)
		}
	}
}

// NOTICE lists the modules that are linked, with licences that may be.
func TestNoticeIsCurrent(t *testing.T) {
	if err := runNotice(root, []string{"--check"}, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestLicenceThatIsNotKnown(t *testing.T) {
	m := &module{Path: "example.com/secret", Version: "v1.0.0", Dir: t.TempDir()}
	if _, err := licenceFiles(root, []*module{m}); err == nil || !strings.Contains(err.Error(), "module example.com/secret has no file with its licence") {
		t.Errorf("no licence: %v", err)
	}
	if err := os.WriteFile(filepath.Join(m.Dir, "LICENSE"), []byte("All rights reserved."), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := notice([]*module{m}); err == nil || !strings.Contains(err.Error(), "module example.com/secret: its licence is not one that is known") {
		t.Errorf("an own licence: %v", err)
	}
}

func TestProduct(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	p, err := productOf(root)
	if err != nil {
		t.Fatal(err)
	}
	if p.version == "" || !strings.HasPrefix(p.kubernetes, "v1.") || p.created.Unix() != 1700000000 || len(p.licences["k8s.io/kubernetes/LICENSE"]) == 0 || len(p.licences["NOTICE"]) == 0 {
		t.Errorf("version %q, kubernetes %q, created %v, %d licences", p.version, p.kubernetes, p.created, len(p.licences))
	}
}
