package karpenter

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Inline is a pool or a class in a profile's arguments: its name, and the spec of a NodePool or a node class as JSON.
type Inline struct {
	Name string
	Spec []byte
}

// Profile holds a scheduler profile's settings about pools.
type Profile struct {
	// Scheduler is the name by which pods ask for the profile.
	Scheduler string
	// Others are schedulers whose pods may also have nodes launched in the profile's pools.
	Others []string
	// Selects reports from a pool object's labels whether nodes may be launched there for the profile's pods; nil means in all pools.
	Selects func(labels map[string]string) bool
	// Pools and Classes are the profile's own, as ReadInline returns them.
	Pools   []*karpv1.NodePool
	Classes []status.Object
}

// ReadInline reads pools and classes of a profile's arguments as an API server would have: it fills in defaults, and returns what the
// definitions or the NodePools' own validation refuse, with the path in the arguments. The results get names that no object has; a
// nodeClassRef that names one of the classes is changed to that class's new name.
func ReadInline(definitions Definitions, class cloudprovider.NodeClassKind, pools, classes []Inline) ([]*karpv1.NodePool, []status.Object, field.ErrorList) {
	var errs field.ErrorList
	var outClasses []status.Object
	own := sets.New[string]()
	for i, c := range classes {
		o, problems := definitions.readInline(nodeClasses(class), c, field.NewPath(class.ArgsField).Index(i), own)
		errs = append(errs, problems...)
		outClasses = append(outClasses, o.(status.Object))
	}
	var outPools []*karpv1.NodePool
	seen := sets.New[string]()
	for i, p := range pools {
		o, problems := definitions.readInline(nodePools, p, field.NewPath("nodePools").Index(i), seen)
		np := o.(*karpv1.NodePool)
		if len(problems) == 0 {
			problems = below(field.NewPath("nodePools").Index(i), validatePool(np, class.GroupKind()))
		}
		errs = append(errs, problems...)
		if ref := np.Spec.Template.Spec.NodeClassRef; ref != nil && own.Has(ref.Name) {
			ref.Name = PoolOfArgs(ref.Name)
		}
		outPools = append(outPools, np)
	}
	if len(errs) > 0 {
		return nil, nil, errs
	}
	return outPools, outClasses, nil
}

func (all Definitions) readInline(k kind, in Inline, at *field.Path, seen sets.Set[string]) (client.Object, field.ErrorList) {
	var errs field.ErrorList
	switch {
	case in.Name == "":
		errs = append(errs, field.Required(at.Child("name"), ""))
	case seen.Has(in.Name):
		errs = append(errs, field.Duplicate(at.Child("name"), in.Name))
	}
	for _, problem := range apivalidation.NameIsDNSSubdomain(in.Name, false) {
		if in.Name != "" {
			errs = append(errs, field.Invalid(at.Child("name"), in.Name, problem))
		}
	}
	seen.Insert(in.Name)
	if len(in.Spec) == 0 {
		return k.fresh(), append(errs, field.Required(at.Child("spec"), "has the same fields as that of a "+k.Kind))
	}
	u := &unstructured.Unstructured{}
	whole, err := json.Marshal(map[string]any{"apiVersion": k.GroupVersion().String(), "kind": k.Kind, "metadata": map[string]any{}, "spec": json.RawMessage(in.Spec)})
	if err == nil {
		err = u.UnmarshalJSON(whole)
	}
	if err != nil {
		return k.fresh(), append(errs, field.Invalid(at.Child("spec"), field.OmitValueType{}, err.Error()))
	}
	for _, path := range all.unknownFields(u) {
		errs = append(errs, below(at, field.ErrorList{field.Forbidden(field.NewPath(path), "there is no such field")})...)
	}
	errs = append(errs, below(at, all.Admit(u))...)
	o := decode(u, k.fresh)
	if reason := malformed(o); reason != "" && len(errs) == 0 {
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, reason))
	}
	o.SetName(PoolOfArgs(in.Name))
	o.SetUID(types.UID(o.GetName())) // the same in every replica and after every restart
	o.SetAnnotations(map[string]string{objects.AnnotationOrigin: in.Name})
	return o, errs
}

// below prefixes the field paths of errors about an object with the path of the object itself.
func below(at *field.Path, errs field.ErrorList) field.ErrorList {
	for _, err := range errs {
		rest := err.Field
		if rest == "" || rest == "<nil>" {
			err.Field = at.String()
		} else {
			err.Field = at.String() + "." + rest
		}
	}
	return errs
}

// SetProfiles sets the profiles; without any, all pods are treated alike. Call it before Run. Profiles may share a pool or a class of
// their arguments only if they give it the same spec.
func (s *Store) SetProfiles(profiles []Profile) error {
	type claimed struct {
		by string
		o  any
	}
	all := map[string]claimed{}
	share := func(p Profile, kind, name, origin string, spec any) error {
		key := kind + " " + name
		if before, ok := all[key]; ok && !equality.Semantic.DeepEqual(before.o, spec) {
			return fmt.Errorf("profiles %q and %q define %s %q differently: give one of them another name", before.by, p.Scheduler, kind, origin)
		}
		all[key] = claimed{p.Scheduler, spec}
		return nil
	}
	for _, p := range profiles {
		for _, nc := range p.Classes {
			if err := share(p, s.nodeClass.ArgsField, nc.GetName(), nc.GetAnnotations()[objects.AnnotationOrigin], part(nc, "Spec").Interface()); err != nil {
				return err
			}
		}
		for _, np := range p.Pools {
			if err := share(p, "nodePools", np.Name, np.Annotations[objects.AnnotationOrigin], np.Spec); err != nil {
				return err
			}
		}
	}
	s.made.profiles = profiles
	return nil
}

// deriveArgs creates the pools and classes of profiles' arguments.
func (s *Store) deriveArgs() {
	s.made.deriving.Lock()
	defer s.made.deriving.Unlock()
	for _, p := range s.made.profiles {
		for _, nc := range p.Classes {
			s.putClass(nc.GetName(), copyOf(nc))
		}
		for _, np := range p.Pools {
			s.putPool(np.Name, np.DeepCopy())
		}
	}
}

// poolFor is poolOf, plus the schedulers that the pool is for.
func (m *sources) poolFor(np *karpv1.NodePool) *capacity.Pool {
	p := poolOf(np, m.class.GroupKind())
	some := true
	if p.Schedulers, some = m.schedulers(np); !some && p.Unready == "" {
		p.Unready = called(np) + ": no profile selects it (nodePoolSelector)"
	}
	return p
}

// schedulers returns the names of the profiles that may launch nodes in the pool, nil for all of them; some is false when none may.
func (m *sources) schedulers(np *karpv1.NodePool) (names []string, some bool) {
	inline := strings.HasPrefix(np.Name, argsPrefix)
	all := true
	for _, p := range m.profiles {
		may := p.Selects == nil || p.Selects(np.Labels)
		if inline {
			may = false
			for _, own := range p.Pools {
				may = may || own.Name == np.Name
			}
		}
		if all = all && may; may {
			names = append(append(names, p.Scheduler), p.Others...)
		}
	}
	if all {
		return nil, true
	}
	return names, len(names) > 0
}

// retireArgs handles the claims of a pool that was removed from the arguments: no pod is evicted, nothing new is launched there, and
// the nodes are terminated when they are empty. Other pools have an object whose deletion triggers this; these have none.
func (s *Store) retireArgs(pool string) {
	if now := s.made.pool(pool); !strings.HasPrefix(pool, argsPrefix) || now != nil && malformed(now) == "" {
		return
	}
	s.made.deriving.Lock()
	defer s.made.deriving.Unlock()
	np := s.made.pool(pool)
	switch used := s.hasClaims(pool); {
	case np == nil && used:
		np = &karpv1.NodePool{}
		np.Name, np.UID = pool, types.UID(pool)
		np.Annotations = map[string]string{
			objects.AnnotationOrigin: strings.TrimPrefix(pool, argsPrefix), objects.AnnotationMalformed: "the profiles' arguments no longer contain this pool",
		}
		np.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
		np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		s.putPool(pool, np)
	case np != nil && malformed(np) != "" && !used:
		s.putPool(pool, nil)
	}
}

func (s *Store) hasClaims(pool string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, k := range s.known {
		if k.claim.Pool == pool {
			return true
		}
	}
	return false
}
