package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// kubeVersion is the version of the API server that charts are rendered for unless another one is asked for.
const kubeVersion = "v1.36.4"

// release is what helm knows when it renders a chart.
type release struct {
	name, namespace, kubeVersion string
	// plain renders without a release: without the labels by which helm knows its objects, and without checking values against the schema,
	// because the placeholders of plain manifests are not valid.
	plain bool
}

// files is what the templates of a chart have become, by path in the chart.
type files map[string]string

// render renders the chart of a folder or package. An error of a value names it.
func (r release) render(chart string, values map[string]any) (files, error) {
	loaded, err := loader.Load(chart)
	if err != nil {
		return nil, fmt.Errorf("loading chart %s: %w", chart, err)
	}
	version, err := common.ParseKubeVersion(r.kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("version %q of the API server: %w", r.kubeVersion, err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := common.ReleaseOptions{Name: r.name, Namespace: r.namespace, IsInstall: true, Revision: 1}
	top, err := util.ToRenderValuesWithSchemaValidation(loaded, values, options, capabilities, r.plain)
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", loaded.Name(), err)
	}
	if r.plain {
		top["Release"].(map[string]any)["Service"] = ""
	}
	rendered, err := engine.Render(loaded, top)
	if err != nil {
		return nil, fmt.Errorf("rendering chart %s: %w", loaded.Name(), err)
	}
	out := files{}
	for name, text := range rendered {
		name = strings.TrimPrefix(name, loaded.Name()+"/templates/")
		if text = strings.TrimSpace(text); text != "" && path.Ext(name) != ".tpl" {
			out[name] = text + "\n"
		}
	}
	return out, nil
}

// documents returns everything that helm would apply, one YAML document after the other, sorted by file.
func (f files) documents() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if name != "NOTES.txt" {
			fmt.Fprintf(&b, "---\n# %s\n%s", name, strings.TrimPrefix(f[name], "---\n"))
		}
	}
	return b.String()
}

func (f files) notes() string { return f["NOTES.txt"] }

// readValues merges files of values, the last one wins, and then single values of the form NAME=VALUE.
func readValues(paths, sets []string) (map[string]any, error) {
	values := map[string]any{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("reading values: %w", err)
		}
		more := map[string]any{}
		if err := yaml.Unmarshal(data, &more); err != nil {
			return nil, fmt.Errorf("reading values of %s: %w", p, err)
		}
		values = loader.MergeMaps(values, more)
	}
	for _, set := range sets {
		if err := strvals.ParseInto(set, values); err != nil {
			return nil, fmt.Errorf("reading --set %s: %w", set, err)
		}
	}
	return values, nil
}
