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
)

// Options say what to read.
type Options struct {
	// Manifests are files, folders and "-": what is to be there.
	Manifests []string
	// Existing are files and folders with what a cluster holds already, as `kubectl get -o yaml` or `-o json` gives it. The
	// pods of its workloads have been made; an object that is in Manifests, too, is taken from there.
	Existing []string
	// DefaultPool adds a NodePool for general use, and its EC2NodeClass: both are called default.
	DefaultPool bool
	// Namespace of objects that name none; empty: default.
	Namespace string
	Stdin     io.Reader
}

// Set is the objects that were read.
type Set struct {
	entries []entry
	// Warnings say what was left out of account, in a fixed order.
	Warnings []string
}

type entry struct {
	object   client.Object
	source   Source
	existing bool
	workload bool
}

// All are the objects of one type, in the order in which they were read.
func All[T client.Object](s *Set) []T {
	var out []T
	for i := range s.entries {
		if o, ok := s.entries[i].object.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// SourceOf is where the object was read.
func (s *Set) SourceOf(o client.Object) Source {
	for i := range s.entries {
		if s.entries[i].object == o {
			return s.entries[i].source
		}
	}
	return Source{}
}

// add puts objects in that were not read.
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

// identity is what no two objects share.
type identity struct {
	schema.GroupKind
	namespace, name string
}

// Read reads all files and checks what they hold. The error holds one for each object that can't be; the set has its warnings
// in any case, for a field with a typing error may be why.
func Read(o Options) (*Set, error) {
	r := &reader{namespace: cmp.Or(o.Namespace, "default"), known: map[identity]int{}, generated: map[string]int{}, quiet: map[string]int{}, foreign: map[string][]string{}}
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
	namespace string
	set       Set
	errs      []error
	known     map[identity]int // index into entries
	generated map[string]int   // names made of a prefix
	// quiet counts objects of kinds that have no say; foreign names those of kinds that aren't known, by kind.
	quiet   map[string]int
	foreign map[string][]string
}

// take decodes one object and keeps it if it has a say in where pods go.
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
		return // its pods are there
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
	object, ignored, errs := k.decode(d, !existing)
	if !existing { // what a server has sent may be newer than what is known here
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
		// A change that is planned for, but for pods: what runs, runs.
		if gk.Kind == "Pod" {
			r.set.entries[at] = e
		}
	case e.existing: // the same dump twice
	default:
		r.errs = append(r.errs, d.errorf("it is in %s already", r.set.entries[at].source))
	}
}

// sum says in few lines what was ignored.
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
		r.set.warn("ignored, since they have no say in where pods go: %s", strings.Join(kinds, ", "))
	}
}
