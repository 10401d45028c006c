package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Source is where an object was read.
type Source struct {
	File string // "-" is standard input
	// Document in the file and Item in a list, both counted from 1; Item is 0 for an object that isn't in a list.
	Document, Item int
}

func (s Source) String() string {
	out := s.File
	if s.File == "-" {
		out = "standard input"
	}
	out = fmt.Sprintf("%s: document %d", out, s.Document)
	if s.Item > 0 {
		out += fmt.Sprintf(", item %d", s.Item)
	}
	return out
}

// document is one object's JSON. Lists have been split.
type document struct {
	Source
	head head
	raw  []byte
	// decoded is the object, if it has been decoded already.
	decoded client.Object
}

// head holds the fields that are read first of every object.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	} `json:"metadata"`
}

// name returns kind and name of the object for messages.
func (d *document) name() string {
	m := &d.head.Metadata
	name := cmp.Or(m.Name, m.GenerateName)
	if m.Namespace != "" {
		name = m.Namespace + "/" + name
	}
	return strings.TrimSpace(d.head.Kind + " " + name)
}

func (d *document) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", d.Source, d.name(), fmt.Errorf(format, args...))
}

// documents reads files, folders (their .yaml, .yml and .json files, including those of folders below) and "-". Every error is
// reported, not only the first.
func documents(paths []string, stdin io.Reader) (out []document, errs []error) {
	for _, path := range paths {
		if path == "-" {
			raw, err := io.ReadAll(stdin)
			if err != nil {
				errs = append(errs, fmt.Errorf("reading standard input: %w", err))
				continue
			}
			docs, bad := split("-", raw)
			out, errs = append(out, docs...), append(errs, bad...)
			continue
		}
		files, err := filesOf(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				errs = append(errs, err) // it names the operation and the file
				continue
			}
			docs, bad := split(file, raw)
			out, errs = append(out, docs...), append(errs, bad...)
		}
	}
	return out, errs
}

// filesOf returns the files that a path stands for, sorted by name.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var out []string
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			out = append(out, file)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no .yaml, .yml or .json file in this folder", path)
	}
	return out, nil
}

// split splits a file into documents and lists into items.
func split(file string, raw []byte) (out []document, errs []error) {
	for i, part := range parts(raw) {
		at := Source{File: file, Document: i + 1}
		text := bytes.TrimSpace(part.text)
		var asJSON []byte
		switch {
		case len(text) == 0:
			continue
		case text[0] == '{' && json.Valid(text):
			asJSON = text
		default:
			// Padding makes line numbers in errors those of the file.
			padded := append(bytes.Repeat([]byte("\n"), part.line), part.text...)
			var err error
			if asJSON, err = yaml.YAMLToJSONStrict(padded); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
				continue
			}
		}
		if string(asJSON) == "null" {
			continue // comments only
		}
		docs, err := items(at, asJSON)
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, docs...)
	}
	return out, errs
}

type part struct {
	text []byte
	line int // lines before it
}

// parts splits at the lines that separate YAML documents. The text before the first separator counts as a document only if it isn't
// empty.
func parts(raw []byte) []part {
	var out []part
	start, startLine, line := 0, 0, 0
	cut := func(end int) {
		if text := raw[start:end]; len(out) > 0 || len(bytes.TrimSpace(withoutComments(text))) > 0 || end == len(raw) {
			out = append(out, part{text, startLine})
		}
	}
	for at := 0; at < len(raw); {
		end := len(raw)
		if i := bytes.IndexByte(raw[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line++
		if text := bytes.TrimRight(raw[at:end], "\r\n"); bytes.HasPrefix(text, []byte("---")) && (len(text) == 3 || text[3] == ' ' || text[3] == '\t') {
			cut(at)
			start, startLine = end, line
		}
		at = end
	}
	cut(len(raw))
	return out
}

func withoutComments(text []byte) []byte {
	var out []byte
	for l := range bytes.Lines(text) {
		if !bytes.HasPrefix(bytes.TrimSpace(l), []byte("#")) {
			out = append(out, l...)
		}
	}
	return out
}

// items returns the objects in a document: the object itself, or the items of a list. Lists of a cluster's pods are large: each is decoded once, and each
// item once more.
func items(at Source, raw []byte) ([]document, error) {
	return itemsOf(at, raw, head{})
}

// itemsOf is items, with apiVersion and kind of objects that have no kind: items of a typed list may omit both.
func itemsOf(at Source, raw []byte, of head) ([]document, error) {
	var list struct {
		head
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		err = json.Unmarshal(raw, &list.head) // the same error, without the field head
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			err = fmt.Errorf("%s is of type %s", cmp.Or(wrong.Field, "it"), wrong.Value)
		}
		return nil, fmt.Errorf("%s: this is not a Kubernetes object: %w", at, err)
	}
	d := document{Source: at, head: list.head, raw: raw}
	if d.head.Kind == "" && of.Kind != "" {
		d.raw = typed(raw, &d.head, of)
	}
	if d.head.Kind == "" || d.head.APIVersion == "" {
		return nil, fmt.Errorf("%s: this is not a Kubernetes object: apiVersion and kind are required", at)
	}
	single, isList := strings.CutSuffix(d.head.Kind, "List")
	if !isList {
		return []document{d}, nil
	}
	var raws []json.RawMessage
	if len(list.Items) > 0 {
		if err := json.Unmarshal(list.Items, &raws); err != nil {
			return nil, d.errorf("items: %w", err)
		}
	}
	kind := head{}
	if single != "" {
		kind.APIVersion, kind.Kind = d.head.APIVersion, single
	}
	out := make([]document, 0, len(raws))
	for i, item := range raws {
		at.Item = i + 1
		inner, err := itemsOf(at, item, kind)
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
	}
	return out, nil
}

// typed returns the object with the kind that it lacks, and completes its head.
func typed(raw []byte, h *head, of head) []byte {
	body := bytes.TrimSpace(raw)
	if len(body) < 2 || body[0] != '{' {
		return raw
	}
	fields := fmt.Sprintf("\"kind\":%q", of.Kind)
	h.Kind = of.Kind
	if h.APIVersion == "" {
		fields += fmt.Sprintf(",\"apiVersion\":%q", of.APIVersion)
		h.APIVersion = of.APIVersion
	}
	if rest := bytes.TrimSpace(body[1:]); rest[0] != '}' {
		fields += ","
	}
	out := make([]byte, 0, len(body)+len(fields))
	out = append(append(out, '{'), fields...)
	return append(out, body[1:]...)
}
