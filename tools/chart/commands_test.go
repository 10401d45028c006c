package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	helm "helm.sh/helm/v4/pkg/cmd"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

// pages returns the documentation: everything in docs, and the pages beside it.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(path string) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
	}
	for _, glob := range []string{"*.md", "docs/*.md", "docs/design/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			read(relative)
		}
	}
	return out
}

// programs are those whose commands are looked for in the documentation.
var programs = []string{"kubectl", "helm", "make"}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	heredoc  = regexp.MustCompile(`<<-?'?(\w+)'?`)
	assigned = regexp.MustCompile(`^[A-Z][A-Z0-9_]*=`)
)

// commandsOf returns the commands of a page, as words: those in its blocks of code, and those quoted in its text.
func commandsOf(text string) (out [][]string) {
	var block strings.Builder
	fenced, fence, until := false, "", ""
	for _, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced, fence = !fenced, strings.TrimPrefix(trimmed, "```")
			continue
		case until != "": // what a command reads
			if trimmed == until {
				until = ""
			}
			continue
		case fenced && (fence == "" || fence == "sh" || fence == "console"), !fenced && strings.HasPrefix(line, "    "):
			block.WriteString(strings.TrimPrefix(trimmed, "$ ") + "\n")
			if m := heredoc.FindStringSubmatch(line); m != nil {
				until = m[1]
			}
		case !fenced:
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], " ") {
					out = append(out, wordsOf(m[1])...)
				}
			}
		}
	}
	out = append(out, wordsOf(strings.ReplaceAll(block.String(), "\\\n", " "))...)
	return slices.DeleteFunc(out, func(words []string) bool { return !slices.Contains(programs, words[0]) })
}

// wordsOf splits a shell's script into commands, and these into words. It knows quotes, comments, pipes, lists and $(...), of which the commands
// are returned, too. Assignments before a command, and redirections, are left out.
func wordsOf(script string) (out [][]string) {
	var words []string
	var word strings.Builder
	inWord := false
	endWord := func() {
		if w := word.String(); inWord && (len(words) > 0 || !assigned.MatchString(w)) {
			words = append(words, w)
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		if endWord(); len(words) > 0 {
			out = append(out, words)
		}
		words = nil
	}
	for i := 0; i < len(script); i++ {
		c := script[i]
		switch {
		case c == '\'' || c == '"':
			end := strings.IndexByte(script[i+1:], c)
			if end < 0 {
				end = len(script) - i - 1
			}
			quoted := script[i+1 : i+1+end]
			word.WriteString(quoted)
			if c == '"' {
				for _, m := range regexp.MustCompile(`\$\(([^()]*)\)`).FindAllStringSubmatch(quoted, -1) {
					out = append(out, wordsOf(m[1])...)
				}
			}
			inWord, i = true, i+1+end
		case strings.HasPrefix(script[i:], "$("):
			depth, j := 1, i+2
			for ; j < len(script) && depth > 0; j++ {
				switch script[j] {
				case '(':
					depth++
				case ')':
					depth--
				}
			}
			out = append(out, wordsOf(script[i+2:max(i+2, j-1)])...)
			word.WriteString("$X")
			inWord, i = true, j-1
		case c == '#' && !inWord:
			for i+1 < len(script) && script[i+1] != '\n' {
				i++
			}
		case c == '|' || c == ';' || c == '&' || c == '\n':
			endCommand()
		case c == '>' || c == '<':
			endWord()
			for i+1 < len(script) && strings.ContainsRune("<>- '", rune(script[i+1])) {
				i++
			}
			for i+1 < len(script) && !strings.ContainsRune(" '\n|;&", rune(script[i+1])) {
				i++
			}
		case c == ' ' || c == '\t':
			endWord()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return out
}

func TestWordsOf(t *testing.T) {
	for script, want := range map[string]string{
		`kubectl get nodes,pods -A -o json > all.json`:                   `[[kubectl get nodes,pods -A -o json]]`,
		`cat <<END | kubectl apply -f -`:                                 `[[cat] [kubectl apply -f -]]`,
		"A=$(aws sts x --query 'a b') # no\nmake push IMAGE=$R:1 && x":   `[[aws sts x --query a b] [make push IMAGE=$R:1] [x]]`,
		`DEMO_PODS=60 make demo; helm list --set "a=$(kubectl version)"`: `[[make demo] [kubectl version] [helm list --set a=$(kubectl version)]]`,
	} {
		if got := fmt.Sprint(wordsOf(script)); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", script, got, want)
		}
	}
}

// Every kubectl, helm and make command of the documentation is one that these programs understand, with flags that they have, about kinds,
// files, charts and targets that exist.
func TestEveryCommandParses(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for page, text := range pages(t) {
		for _, words := range commandsOf(text) {
			var err error
			switch words[0] {
			case "kubectl":
				if len(words) > 1 && words[1] == "dovetail" {
					continue // a plugin: cmd/dovetail checks its commands
				}
				err = checkKubectl(words[1:], text)
			case "helm":
				err = checkHelm(words[1:])
			case "make":
				err = checkMake(string(makefile), words[1:])
			}
			if err != nil {
				t.Errorf("%s: %s: %v", page, strings.Join(words, " "), err)
			}
			found[words[0]]++
		}
	}
	if found["kubectl"] < 40 || found["helm"] < 8 || found["make"] < 40 {
		t.Errorf("only %v commands were found: this test reads the pages wrongly", found)
	}
}

func TestWrongCommandsAreFound(t *testing.T) {
	ofNoPage := func(args []string) error { return checkKubectl(args, "") }
	for _, tc := range []struct {
		check   func([]string) error
		command string
	}{
		{ofNoPage, "gett nodes"},
		{ofNoPage, "get nodes --selectr=a"},
		{ofNoPage, "get nodeclaim,nodepol"},
		{ofNoPage, "rollout"},
		{ofNoPage, "apply -f manifests/nothing"},
		{checkHelm, "upgrad dovetail"},
		{checkHelm, "upgrade dovetail bin/dovetail-0.0.9.tgz"},
		{checkHelm, "upgrade dovetail charts/dovetail"},
		{checkHelm, "upgrade dovetail bin/dovetail-0.2.0.tgz --set settings.clustername=a"},
		{checkHelm, "rollback dovetail --to 3"},
		{func(args []string) error { return checkMake("\nbuild:\n", args) }, "biuld"},
		{func(args []string) error { return checkMake("\nbuild:\n", args) }, "build SPEED=1"},
	} {
		if err := tc.check(strings.Fields(tc.command)); err == nil {
			t.Errorf("nothing is wrong with %s", tc.command)
		}
	}
}

// kinds are those that the documentation's commands are about, by the name or short name that kubectl takes.
var kinds = strings.Fields("node nodes pod pods pvc pv csinodes namespace namespaces ns daemonset daemonsets deployment deployments statefulset statefulsets job jobs " +
	"service services configmap configmaps poddisruptionbudget poddisruptionbudgets serviceaccount crd priorityclasses runtimeclasses limitranges storageclasses resourceclaims resourceslices deviceclasses lease events " +
	"nodepool nodepools nodeclaim nodeclaims ec2nodeclass ec2nodeclasses nodeoverlay nodeoverlays capacitybuffer capacitybuffers provisioningrequest provisioningrequests")

// checkKubectl checks a command of a page. A folder that the page has its readers make need not exist here.
func checkKubectl(args []string, page string) error {
	command, rest, err := find(kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{Arguments: []string{"kubectl"}}), args)
	if err != nil {
		return err
	}
	switch verb := command.Name(); verb {
	case "get", "describe", "annotate", "scale", "delete":
		if len(rest) == 0 {
			break
		}
		for _, kind := range strings.Split(rest[0], ",") {
			if kind, _, _ = strings.Cut(kind, "/"); !slices.Contains(kinds, kind) {
				return fmt.Errorf("%s: there is no kind %q", verb, kind)
			}
		}
	}
	if flag := command.Flags().Lookup("filename"); flag != nil && flag.Changed {
		for _, file := range strings.Split(strings.Trim(flag.Value.String(), "[]"), ",") {
			if file == "-" || strings.Contains(file, "$") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil && !strings.Contains(page, "mkdir -p "+file+"\n") {
				return err
			}
		}
	}
	return nil
}

var packaged = regexp.MustCompile(`^bin/([a-z-]+)-([0-9.]+)\.tgz$`)

func checkHelm(args []string) error {
	all, err := helm.NewRootCmd(io.Discard, nil, func(bool) {})
	if err != nil {
		return err
	}
	command, rest, err := find(all, args)
	if err != nil || command.Name() != "upgrade" || len(rest) == 0 {
		return err
	}
	m := packaged.FindStringSubmatch(rest[len(rest)-1])
	if strings.HasPrefix(rest[len(rest)-1], "oci://public.ecr.aws/karpenter/") {
		return nil // Karpenter's own chart
	}
	if m == nil {
		return fmt.Errorf("%s is no packaged chart", rest[len(rest)-1])
	}
	chart, err := os.ReadFile(filepath.Join(root, "charts", m[1], "Chart.yaml"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(chart), "\nversion: "+m[2]+"\n") {
		return fmt.Errorf("chart %s has another version", m[1])
	}
	for _, set := range setsOf(strings.Join(args, " ")) {
		if name, _, _ := strings.Cut(set, "="); name == "karpenter" || name == "podGroups" || name == "provisioners" {
			continue
		}
		values, err := readValues(nil, []string{set, "settings.clusterName=blue", "image.repository=example.org/dovetail"})
		if err != nil {
			return err
		}
		if _, err := (release{name: "dovetail", namespace: "kube-system", kubeVersion: kubeVersion}).render(filepath.Join(root, "charts", m[1]), values); err != nil {
			return fmt.Errorf("--set %s: %w", set, err)
		}
	}
	return nil
}

// find returns the command that the arguments name, and its arguments without flags. Flags that it doesn't have are errors.
func find(all *cobra.Command, args []string) (*cobra.Command, []string, error) {
	command, rest, err := all.Find(args)
	if err != nil {
		return nil, nil, err
	}
	if command == all || !command.Runnable() {
		return nil, nil, fmt.Errorf("no command of %s's", all.Name())
	}
	if err := command.ParseFlags(rest); err != nil {
		return nil, nil, err
	}
	if command.HasSubCommands() && command.Flags().NFlag() == 0 {
		return nil, nil, fmt.Errorf("%s of which", command.CommandPath())
	}
	return command, command.Flags().Args(), nil
}

// checkMake checks targets, and variables that the Makefile or the demo reads.
func checkMake(makefile string, args []string) error {
	for _, arg := range args {
		name, _, isVariable := strings.Cut(arg, "=")
		switch {
		case isVariable && !regexp.MustCompile(`\b`+name+`\b`).MatchString(makefile) && !strings.HasPrefix(name, "DEMO_"):
			return fmt.Errorf("the Makefile has no variable %s", name)
		case !isVariable && !strings.Contains(makefile, "\n"+name+":"):
			return fmt.Errorf("the Makefile has no target %s", name)
		}
	}
	return nil
}
