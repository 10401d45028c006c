package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// karpenter is the module that has Karpenter's custom resource definitions, and the chart whose values ours understands.
const karpenter = "github.com/aws/karpenter-provider-aws"

// moduleRoot returns the folder of Dovetail's own module, at or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for charts/dovetail: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "charts", "dovetail", "Chart.yaml")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no charts/dovetail in the working directory or above it")
		}
		dir = parent
	}
}

// moduleFolder returns the folder of a module in the version that Dovetail's own go.mod names, and downloads it if need be.
func moduleFolder(root, module string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	var m struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(data, &m); err != nil || jsonErr != nil || m.Dir == "" {
		return "", fmt.Errorf("downloading module %s: %w %s%s", module, errors.Join(err, jsonErr), m.Error, stderr.Bytes())
	}
	return m.Dir, nil
}

// loadDefinitions returns the chart dovetail-crd with the definitions in it: its folder has only the template that renders them.
func loadDefinitions(root string) (*chart.Chart, error) {
	c, err := loader.Load(filepath.Join(root, "charts", "dovetail-crd"))
	if err != nil {
		return nil, fmt.Errorf("loading chart dovetail-crd: %w", err)
	}
	module, err := moduleFolder(root, karpenter)
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{filepath.Join(module, "pkg", "apis", "crds"), filepath.Join(root, "manifests", "crds")} {
		paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no custom resource definitions in %s", folder)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("reading a custom resource definition: %w", err)
			}
			c.Files = append(c.Files, &common.File{Name: "definitions/" + filepath.Base(path), Data: data})
		}
	}
	return c, nil
}

func runPackage(root string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("package", flag.ContinueOnError)
	folder := flags.String("out", "", "folder of the packages")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags of package: %w", err)
	}
	if *folder == "" {
		return fmt.Errorf("package needs --out\n%s", usage)
	}
	own, err := loader.Load(filepath.Join(root, "charts", "dovetail"))
	if err != nil {
		return fmt.Errorf("loading chart dovetail: %w", err)
	}
	definitions, err := loadDefinitions(root)
	if err != nil {
		return err
	}
	for _, c := range []*chart.Chart{own, definitions} {
		path, err := chartutil.Save(c, *folder)
		if err != nil {
			return fmt.Errorf("packaging chart %s: %w", c.Name(), err)
		}
		fmt.Fprintln(out, path)
	}
	return nil
}
