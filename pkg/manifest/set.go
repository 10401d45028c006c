package manifest

import (
	"cmp"
	_ "embed" // the default pool
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// Options define what to read.
type Options struct {
	// Manifests are files, folders and "-": the objects to create.
	Manifests []string
	// Existing are files and folders with the objects of a cluster, as printed by `kubectl get -o yaml` or `-o json`. The pods of its
	// workloads exist already; an object that is also in Manifests is taken from there.
	Existing []string
	// Cluster is what an API server has answered. Its objects count like those in Existing.
	Cluster []Listing
	// DefaultPool adds a NodePool for general use, and its EC2NodeClass: both are called default.
	DefaultPool bool
	// Namespace of objects that name none; empty: default.
	Namespace string
	Stdin     io.Reader
	// Definitions check objects of custom kinds.
	Definitions karpenter.Definitions
}

// Listing is the answer to a list request, or a part of it.
type Listing struct {
	// Name is what was listed, such as "pods". Errors name it.
	Name string
	JSON []byte
}

// Set holds the objects that were read.
type Set struct {
	entries []entry
	// Warnings name what was ignored, in a fixed order.
	Warnings []string
}

type entry struct {
	object   client.Object
	source   Source
	existing bool
	workload bool
}

// All returns the objects of one type, in the order in which they were read.
func All[T client.Object](s *Set) []T {
	var out []T
	for i := range s.entries {
		if o, ok := s.entries[i].object.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// SourceOf returns where the object was read.
func (s *Set) SourceOf(o client.Object) Source {
	for i := range s.entries {
		if s.entries[i].object == o {
			return s.entries[i].source
		}
	}
	return Source{}
}

// Edit returns a set in which each object is what change returns for it; nil leaves it out. change must not change the object that it is
// given: s stays as it is.
func (s *Set) Edit(change func(client.Object) client.Object) *Set {
	out := &Set{Warnings: slices.Clone(s.Warnings), entries: make([]entry, 0, len(s.entries))}
	for _, e := range s.entries {
		if e.object = change(e.object); e.object != nil {
			out.entries = append(out.entries, e)
		}
	}
	return out
}

// With returns a set that has these objects, too, as if they had been read from a cluster.
func (s *Set) With(objects ...client.Object) *Set {
	out := &Set{Warnings: slices.Clone(s.Warnings), entries: slices.Clone(s.entries)}
	for _, o := range objects {
		out.entries = append(out.entries, entry{object: o, existing: true})
	}
	return out
}

// add adds objects that were not read from a file.
func (s *Set) add(objects ...client.Object) {
	for _, o := range objects {
		s.entries = append(s.entries, entry{object: o})
	}
}

func (s *Set) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

//go:embed default-pool.yaml
var defaultPool []byte

// identity is unique for each object.
type identity struct {
	schema.GroupKind
	namespace, name string
}

// Read reads all files and validates the objects in them. The error contains one error for each invalid object; the set has its
// warnings in any case, because an ignored, misspelt field may be the cause of an error.
func Read(o Options) (*Set, error) {
	r := &reader{definitions: o.Definitions, namespace: cmp.Or(o.Namespace, "default"), known: map[identity]int{}, generated: map[string]int{}, quiet: map[string]int{}, foreign: map[string][]string{}}
	for _, in := range []struct {
		paths    []string
		existing bool
	}{{o.Manifests, false}, {o.Existing, true}} {
		docs, errs := documents(in.paths, o.Stdin)
		r.errs = append(r.errs, errs...)
		for i := range docs {
			r.take(&docs[i], in.existing)
		}
	}
	for _, l := range listed(o.Cluster) {
		r.errs = append(r.errs, l.errs...)
		for i := range l.docs {
			r.take(&l.docs[i], true)
		}
	}
	if o.DefaultPool {
		docs, errs := split("the pool of --default-pool", defaultPool)
		r.errs = append(r.errs, errs...)
		for i := range docs {
			r.take(&docs[i], false)
		}
	}
	r.sum()
	return &r.set, errors.Join(r.errs...)
}

type reader struct {
	definitions karpenter.Definitions
	namespace   string
	set         Set
	errs        []error
	known       map[identity]int // index into entries
	generated   map[string]int   // number of names generated from a prefix
	// quiet counts objects of kinds that don't influence placement; foreign lists the objects of unknown kinds, by kind.
	quiet   map[string]int
	foreign map[string][]string
}

// take decodes one object and keeps it if it influences where pods are placed.
func (r *reader) take(d *document, existing bool) {
	gv, err := schema.ParseGroupVersion(d.head.APIVersion)
	if err != nil {
		r.errs = append(r.errs, d.errorf("apiVersion: %w", err))
		return
	}
	gk := schema.GroupKind{Group: gv.Group, Kind: d.head.Kind}
	k, ok := understood[gk]
	switch word, known := apart[gk]; {
	case ok && existing && k.workload:
		return // its pods exist
	case ok && !existing && k.reported:
		r.quiet[gk.Kind]++
		return
	case ok && gv.Version != k.version:
		r.errs = append(r.errs, d.errorf("apiVersion: %s is not supported, %s is", d.head.APIVersion, schema.GroupVersion{Group: gv.Group, Version: k.version}))
		return
	case ok:
	case existing:
		return
	case known:
		r.set.warn("%s: %s %s", d.Source, d.name(), word)
		return
	case indifferent[gk] || indifferentGroups[gv.Group]:
		r.quiet[gk.Kind]++
		return
	default:
		of := gk.Kind + " (" + d.head.APIVersion + ")"
		r.foreign[of] = append(r.foreign[of], fmt.Sprintf("%s in %s", strings.TrimPrefix(d.name(), gk.Kind+" "), d.Source))
		return
	}
	if d.head.Metadata.Namespace == "" && !k.cluster {
		d.head.Metadata.Namespace = r.namespace
	}
	if m := &d.head.Metadata; m.Name == "" && m.GenerateName != "" {
		r.generated[m.GenerateName]++
		m.Name = m.GenerateName + strconv.Itoa(r.generated[m.GenerateName])
	}
	object, ignored, errs := d.decoded, []string(nil), []error(nil)
	if object == nil {
		object, ignored, errs = k.decode(d, r.definitions, !existing)
	}
	if !existing { // a server may be newer and send fields that we don't know
		for _, field := range ignored {
			r.set.warn("%s: %s: %s is ignored", d.Source, d.name(), field)
		}
	}
	if len(errs) > 0 {
		r.errs = append(r.errs, errs...)
		return
	}
	r.keep(gk, d, entry{object: object, source: d.Source, existing: existing, workload: k.workload})
}

func (r *reader) keep(gk schema.GroupKind, d *document, e entry) {
	id := identity{gk, e.object.GetNamespace(), e.object.GetName()}
	at, twice := r.known[id]
	switch {
	case !twice:
		r.known[id] = len(r.set.entries)
		r.set.entries = append(r.set.entries, e)
	case e.existing && !r.set.entries[at].existing:
		// The manifest is a planned change and wins. For pods the existing object wins: a running pod isn't changed.
		if gk.Kind == "Pod" {
			r.set.entries[at] = e
		}
	case e.existing: // the same dump twice
	default:
		r.errs = append(r.errs, d.errorf("it is already in %s", r.set.entries[at].source))
	}
}

// sum adds short warnings about what was ignored.
func (r *reader) sum() {
	for _, of := range slices.Sorted(maps.Keys(r.foreign)) {
		where := r.foreign[of]
		more := ""
		if n := len(where) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		r.set.warn("%s is not understood and ignored: %s%s", of, where[0], more)
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.quiet)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", r.quiet[kind], kind))
	}
	if len(kinds) > 0 {
		r.set.warn("ignored, because they don't affect where pods are placed: %s", strings.Join(kinds, ", "))
	}
}
