package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// own is the path of Dovetail's module.
const own = "github.com/dovetail-scheduler/dovetail"

// sbomName is the file name of an SBOM; scanners know the ending.
func sbomName(arch string) string { return "dovetail-scheduler-linux-" + arch + ".spdx.json" }

// sbom returns a software bill of materials as SPDX 2.3 in JSON. It lists the modules that the linker has recorded in the binary, with their
// hashes, and the Go that built it.
func (p product) sbom(b binary) ([]byte, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, fmt.Errorf("reading a binary for its SBOM: %w", err)
	}
	sum := sha256.Sum256(program)
	main := p.ownPackage(hex.EncodeToString(sum[:]))
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: "dovetail-scheduler-" + p.version + "-linux-" + b.arch,
		DocumentNamespace: "https://" + own + "/spdx/" + p.version + "/" + hex.EncodeToString(sum[:]),
		CreationInfo:      &spdx.CreationInfo{Created: p.created.Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "dovetail-image-" + p.version}}},
		Packages:          []*spdx.Package{main},
	}
	relate := func(from, to common.ElementID, as string) {
		document.Relationships = append(document.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(to)), Relationship: as})
	}
	relate("DOCUMENT", main.PackageSPDXIdentifier, common.TypeRelationshipDescribe)
	others := []*spdx.Package{goPackage("stdlib", strings.TrimPrefix(b.info.GoVersion, "go"), "")}
	for _, dep := range b.info.Deps {
		others = append(others, modulePackage(dep))
	}
	for _, other := range others {
		document.Packages = append(document.Packages, other)
		relate(main.PackageSPDXIdentifier, other.PackageSPDXIdentifier, common.TypeRelationshipDependsOn)
	}
	var out bytes.Buffer
	if err := spdxjson.Write(document, &out, spdxjson.Indent("  ")); err != nil {
		return nil, fmt.Errorf("writing an SBOM: %w", err)
	}
	return out.Bytes(), nil
}

func (p product) ownPackage(sum string) *spdx.Package {
	main := goPackage(own, "v"+p.version, "")
	main.PackageLicenseDeclared, main.PackageLicenseConcluded = "Apache-2.0", "Apache-2.0"
	main.PrimaryPackagePurpose = "APPLICATION"
	main.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
	return main
}

// modulePackage describes a module that is linked: its replacement, if it has one.
func modulePackage(m *debug.Module) *spdx.Package {
	if m.Replace != nil {
		m = m.Replace
	}
	return goPackage(m.Path, m.Version, m.Sum)
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// goPackage describes a Go module. sum is that of go.sum: h1 is the base64 of a SHA-256.
func goPackage(path, version, sum string) *spdx.Package {
	pkg := &spdx.Package{
		PackageName: path, PackageVersion: version, PackageSPDXIdentifier: common.ElementID("Package-" + notInID.ReplaceAllString(path+"-"+version, "-")),
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + path + "@" + version}},
	}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) == sha256.Size {
		pkg.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(hash)}}
		pkg.PackageDownloadLocation = "https://proxy.golang.org/" + escape(path) + "/@v/" + escape(version) + ".zip"
	}
	return pkg
}

// escape writes capital letters as the Go module proxy wants them.
func escape(text string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(text, func(c string) string { return "!" + strings.ToLower(c) })
}
