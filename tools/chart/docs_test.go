package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// variables are what the shell of someone who follows docs/install.md knows.
var variables = strings.NewReplacer("$CLUSTER", "blue", "$REGION", "us-west-2", "$ACCOUNT", "111122223333", "$PARTITION", "aws",
	"$REPOSITORY", "111122223333.dkr.ecr.us-west-2.amazonaws.com/dovetail-scheduler",
	"${ENDPOINT:?}", "https://10.0.0.1:6443", "${CA_BUNDLE:?}", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==", "${SERVICE_CIDR:?}", "10.96.0.0/12")

var (
	helmCommand = regexp.MustCompile(`(?m)^ +helm upgrade --install (\S+) bin/(\S+)-([0-9.]+)\.tgz ((?:.*\\\n)*.*)$`)
	valuesFile  = regexp.MustCompile(`(?ms)^( +)cat <<END > (\S+)\n(.*?)^ +END$`)
	valuesFlag  = regexp.MustCompile(`--values (\S+)`)
	setFlag     = regexp.MustCompile(`--set (?:'([^']*)'|"([^"]*)"|([^\s` + "`" + `)]+))`)
)

// definitions are the values of the chart of definitions that pages name; chart_test.go renders them.
var definitions = []string{"karpenter=false", autoMode, "podGroups=false", "provisioners=true", "capacityBuffers=true", "provisioningRequests=true"}

func setsOf(text string) (sets []string) {
	for _, m := range setFlag.FindAllStringSubmatch(text, -1) {
		sets = append(sets, variables.Replace(m[1]+m[2]+m[3]))
	}
	return sets
}

// filesOf writes the values files that a page tells its readers to write, and returns where they are, by the page's name for them.
func filesOf(t *testing.T, page string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range valuesFile.FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile("(?m)^"+m[1]).ReplaceAllString(m[3], "")
		out[m[2]] = filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(out[m[2]], []byte(variables.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// The commands of docs/install.md install charts that exist, with values that they have, and everything that the page says of them is there.
func TestDocumentedCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := runPackage(root, []string{"--out", out}, io.Discard); err != nil {
		t.Fatal(err)
	}
	commands := helmCommand.FindAllStringSubmatch(string(page), -1)
	if len(commands) != 3 {
		t.Errorf("%d helm commands, want 3: definitions, beside the scheduler, in its place", len(commands))
	}
	inCommands, written := map[string]bool{}, filesOf(t, string(page))
	for _, command := range commands {
		name, chart, version, rest := command[1], command[2], command[3], command[4]
		if name != chart || !strings.Contains(rest, "--namespace kube-system") {
			t.Errorf("%s installs %s as %s", command[0], chart, name)
		}
		sets := setsOf(rest)
		for _, s := range sets {
			inCommands[s] = true
		}
		var given []string
		for _, m := range valuesFlag.FindAllStringSubmatch(rest, -1) {
			if written[m[1]] == "" {
				t.Errorf("%s: the page doesn't say what is in %s", command[0], m[1])
			}
			given = append(given, written[m[1]])
		}
		values, err := readValues(given, sets)
		if err != nil {
			t.Fatal(err)
		}
		r := release{name: name, namespace: "kube-system", kubeVersion: kubeVersion}
		rendered, err := r.render(filepath.Join(out, fmt.Sprintf("%s-%s.tgz", chart, version)), values)
		if err != nil {
			t.Errorf("%s: %v", command[0], err)
		} else if notes := rendered.notes(); strings.Contains(notes, "WARNINGS") || regexp.MustCompile(`\$[A-Z]{3}`).MatchString(rendered.documents()) {
			t.Errorf("%s: it warns, or leaves a variable:\n%s", command[0], notes)
		}
	}
	single := 0
	for _, set := range setsOf(string(page)) {
		if inCommands[set] {
			continue
		}
		single++
		if slices.Contains(definitions, set) {
			set = ""
		}
		if _, err := render(t, release{}, set); err != nil {
			t.Errorf("--set %s: %v", set, err)
		}
	}
	if single < 8 {
		t.Errorf("%d values in the text: this test reads the page wrongly", single)
	}
	// What a role for people, a metric's rule and so on is switched on by exists.
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z.]+)`").FindAllStringSubmatch(string(page), -1) {
		if _, err := render(t, release{}, m[1]+"=true"); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}

// Who installs without helm gets files without a placeholder, from the commands of the page, as often as they are run.
func TestWithoutHelm(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Without helm\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile(`(?m)^    mkdir -p bin/(?:secondary|replace)\n(?:    .*\n)*`).FindAllString(section, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks make files, want 2: beside the scheduler, and in its place", len(blocks))
	}
	for i, block := range blocks {
		made := filepath.Join(t.TempDir(), "made")
		run := func(env ...string) error {
			cmd := exec.Command("bash", "-euo", "pipefail", "-c", regexp.MustCompile("bin/(secondary|replace)").ReplaceAllString(block, made))
			cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		}
		if err := run("CLUSTER=blue", "REGION=us-west-2", "IMAGE="); err == nil || !strings.Contains(err.Error(), "IMAGE") {
			t.Errorf("block %d without IMAGE: %v", i, err)
		}
		for _, cluster := range []string{"green", "blue"} {
			if err := run("CLUSTER="+cluster, "REGION=us-west-2", "IMAGE=registry.example/dovetail:0.2.0"); err != nil {
				t.Fatalf("block %d: %v", i, err)
			}
		}
		var all strings.Builder
		for _, file := range []string{"10-rbac.yaml", "20-config.yaml", "30-deployment.yaml"} {
			text, err := os.ReadFile(filepath.Join(made, file))
			if err != nil && (i == 0 || file != "30-deployment.yaml") {
				t.Fatal(err)
			}
			all.Write(text)
		}
		text := regexp.MustCompile(`(?m)^ *#.*$`).ReplaceAllString(all.String(), "")
		for _, want := range []string{"clusterName: blue\n", "region: us-west-2\n", "interruptionQueue: Dovetail-blue\n", "image: registry.example/dovetail:0.2.0\n", "kind: ClusterRoleBinding\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("block %d: the files don't have %q", i, want)
			}
		}
		if strings.Contains(text, placeholder) || strings.Contains(text, "image: dovetail") {
			t.Errorf("block %d leaves a placeholder:\n%s", i, text)
		}
	}
}
