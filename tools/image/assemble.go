package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// layoutFolder is the folder of the OCI image layout below the folder that build writes to.
const layoutFolder = "image"

// nonroot is the user of the image, by the name and number that images without an operating system customarily have.
const nonroot = "65532"

const (
	entryPoint = "/dovetail-scheduler"
	rootsFile  = "etc/ssl/certs/ca-certificates.crt" // where Go looks first
)

// write writes the image of these binaries as an OCI image layout, and an SBOM for each of them beside it. It returns the digest of the image's
// index, which names it in any registry.
func (p product) write(folder string, binaries []binary) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("writing the image: %w", err)
	}
	index, err := p.index(binaries)
	if err != nil {
		return "", err
	}
	target := filepath.Join(folder, layoutFolder)
	if err := os.RemoveAll(target); err != nil {
		return "", fmt.Errorf("removing the image of before: %w", err)
	}
	if _, err := layout.Write(target, index); err != nil {
		return "", fmt.Errorf("writing the image to %s: %w", target, err)
	}
	for _, b := range binaries {
		sbom, err := p.sbom(b)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(folder, sbomName(b.arch)), sbom, 0o644); err != nil {
			return "", fmt.Errorf("writing an SBOM: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return "", fmt.Errorf("reading the digest of the image: %w", err)
	}
	return digest.String(), nil
}

// index returns the image for all architectures.
func (p product) index(binaries []binary) (v1.ImageIndex, error) {
	base, err := layer(p.base())
	if err != nil {
		return nil, err
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		image, err := p.image(base, b)
		if err != nil {
			return nil, fmt.Errorf("assembling the image for %s: %w", b.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.arch}}})
	}
	return mutate.Annotations(index, p.annotations("")).(v1.ImageIndex), nil
}

// base are the files that all architectures have: certificate authorities, the user, and licences.
func (p product) base() map[string]file {
	files := map[string]file{
		rootsFile:    {data: certificates(), mode: 0o644},
		"etc/passwd": {data: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:" + nonroot + ":" + nonroot + ":nonroot:/:/sbin/nologin\n"), mode: 0o644},
		"etc/group":  {data: []byte("root:x:0:\nnonroot:x:" + nonroot + ":\n"), mode: 0o644},
	}
	for name, data := range p.licences {
		files[path.Join("licenses", name)] = file{data: data, mode: 0o644}
	}
	return files
}

// certificates returns Mozilla's certificate authorities, those that Go's x509roots names, as PEM. One that only some dates or names may use
// is left out, because a PEM file can't say so.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return b.Bytes()
}

// image returns the image for one architecture.
func (p product) image(base v1.Layer, b binary) (v1.Image, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, fmt.Errorf("reading the binary: %w", err)
	}
	sbom, err := p.sbom(b)
	if err != nil {
		return nil, err
	}
	own, err := layer(map[string]file{
		strings.TrimPrefix(entryPoint, "/"): {data: program, mode: 0o755},
		path.Join("sbom", sbomName(b.arch)): {data: sbom, mode: 0o644},
	})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: v1.Time{Time: p.created}, CreatedBy: "certificate authorities, licences"}},
		mutate.Addendum{Layer: own, History: v1.History{Created: v1.Time{Time: p.created}, CreatedBy: "dovetail-scheduler " + p.version}})
	if err != nil {
		return nil, fmt.Errorf("adding layers: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", b.arch, v1.Time{Time: p.created}
	config.Config = v1.Config{
		Entrypoint: []string{entryPoint}, User: nonroot + ":" + nonroot, WorkingDir: "/", Labels: p.annotations(b.revision()),
		Env: []string{"PATH=/", "SSL_CERT_FILE=/" + rootsFile},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("setting the configuration: %w", err)
	}
	return mutate.Annotations(image, p.annotations(b.revision())).(v1.Image), nil
}

func (p product) annotations(revision string) map[string]string {
	all := map[string]string{
		"org.opencontainers.image.title":       "dovetail-scheduler",
		"org.opencontainers.image.description": "A kube-scheduler that launches the node your pod is missing",
		"org.opencontainers.image.version":     p.version,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"sh.dovetail.kubernetes.version":       p.kubernetes,
	}
	if revision != "" {
		all["org.opencontainers.image.revision"] = revision
	}
	return all
}

// file is a file of a layer.
type file struct {
	data []byte
	mode fs.FileMode
}

// layer returns a layer with these files, by path, and the folders that they are in. Nothing in it depends on when or where it is made.
func layer(files map[string]file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for i, r := range name {
			if folder := name[:i]; r == '/' && !folders[folder] {
				folders[folder] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, Format: tar.FormatPAX}); err != nil {
					return nil, fmt.Errorf("writing folder %s of a layer: %w", folder, err)
				}
			}
		}
		f := files[name]
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode), Size: int64(len(f.data)), Format: tar.FormatPAX})
		if _, dataErr := w.Write(f.data); err != nil || dataErr != nil {
			return nil, fmt.Errorf("writing %s of a layer: %w", name, errors.Join(err, dataErr))
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("compressing a layer: %w", err)
	}
	return made, nil
}
