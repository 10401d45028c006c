package karpenter

import (
	"encoding/json"

	"github.com/awslabs/operatorpkg/status"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

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
		o, problems := definitions.readInline(NodeClasses(class), c, field.NewPath(class.ArgsField).Index(i), own)
		errs = append(errs, problems...)
		outClasses = append(outClasses, o.(status.Object))
	}
	var outPools []*karpv1.NodePool
	seen := sets.New[string]()
	for i, p := range pools {
		o, problems := definitions.readInline(NodePools, p, field.NewPath("nodePools").Index(i), seen)
		np := o.(*karpv1.NodePool)
		if len(problems) == 0 {
			problems = below(field.NewPath("nodePools").Index(i), ValidatePool(np, class.GroupKind()))
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

func (all Definitions) readInline(k CustomKind, in Inline, at *field.Path, seen sets.Set[string]) (client.Object, field.ErrorList) {
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
		return k.New(), append(errs, field.Required(at.Child("spec"), "has the same fields as that of a "+k.Kind))
	}
	u := &unstructured.Unstructured{}
	whole, err := json.Marshal(map[string]any{"apiVersion": k.GroupVersion().String(), "kind": k.Kind, "metadata": map[string]any{}, "spec": json.RawMessage(in.Spec)})
	if err == nil {
		err = u.UnmarshalJSON(whole)
	}
	if err != nil {
		return k.New(), append(errs, field.Invalid(at.Child("spec"), field.OmitValueType{}, err.Error()))
	}
	for _, path := range all.unknownFields(u) {
		errs = append(errs, below(at, field.ErrorList{field.Forbidden(field.NewPath(path), "there is no such field")})...)
	}
	errs = append(errs, below(at, all.Admit(u))...)
	o := Decode(u, k.New)
	if reason := Malformed(o); reason != "" && len(errs) == 0 {
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
