package binder

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
)

// ArgsKind is the kind of Binder's arguments.
const ArgsKind = "BinderArgs"

// Args configures Binder.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// EarliestBinding is when a pod may be bound, at the earliest, to a node that was launched for it: Early (default: while the node is
	// booting, where that is safe), Registered or Initialized. A pod that isn't safe on the node by then waits longer.
	EarliestBinding string `json:"earliestBinding,omitempty"`
	// GateDeadline is how long a pod waits for the node that was planned for it. After that it may go to any node.
	GateDeadline *metav1.Duration `json:"gateDeadline,omitempty"`
	// LateAfter is how long after its launch a node that has not registered still gets pods. It applies until enough nodes that boot alike have
	// shown how long they take.
	LateAfter *metav1.Duration `json:"lateAfter,omitempty"`
}

// Values of EarliestBinding.
const (
	Early       = "Early"
	Registered  = "Registered"
	Initialized = "Initialized"
)

var moments = map[string]capacity.BindTime{Early: capacity.BindEarly, Registered: capacity.BindRegistered, Initialized: capacity.BindInitialized}

// Earliest returns EarliestBinding as a BindTime.
func (a *Args) Earliest() capacity.BindTime { return moments[a.EarliestBinding] }

// DecodeArgs reads the plugin's arguments strictly: unknown fields and invalid values are errors that name the field. Without arguments
// the defaults apply.
func DecodeArgs(obj runtime.Object) (*Args, error) {
	args := &Args{}
	if err := pluginargs.Decode(obj, ArgsKind, args); err != nil {
		return nil, fmt.Errorf("%s arguments: %w", Name, err)
	}
	args.setDefaults()
	if errs := args.validate(); len(errs) > 0 {
		return nil, fmt.Errorf("%s arguments: %w", Name, errs.ToAggregate())
	}
	return args, nil
}

func (a *Args) setDefaults() {
	if a.EarliestBinding == "" {
		a.EarliestBinding = Early
	}
	if a.GateDeadline == nil {
		a.GateDeadline = &metav1.Duration{Duration: 25 * time.Minute}
	}
	if a.LateAfter == nil {
		a.LateAfter = &metav1.Duration{Duration: 3 * time.Minute}
	}
}

func (a *Args) validate() (errs field.ErrorList) {
	errs = pluginargs.ValidateKind(a.TypeMeta, ArgsKind)
	if _, ok := moments[a.EarliestBinding]; !ok {
		errs = append(errs, field.NotSupported(field.NewPath("earliestBinding"), a.EarliestBinding, []string{Early, Registered, Initialized}))
	}
	if d := a.GateDeadline.Duration; d < time.Minute || d > 24*time.Hour {
		errs = append(errs, field.Invalid(field.NewPath("gateDeadline"), d.String(), "must be between 1m and 24h"))
	}
	if d := a.LateAfter.Duration; d < time.Second || d > a.GateDeadline.Duration {
		errs = append(errs, field.Invalid(field.NewPath("lateAfter"), d.String(), "must be between 1s and gateDeadline"))
	}
	return errs
}

// Contradicts returns a field that applies to the whole process and in which the arguments of two profiles differ, or "".
func (a *Args) Contradicts(b *Args) string {
	switch {
	case a.GateDeadline.Duration != b.GateDeadline.Duration:
		return "gateDeadline"
	case a.LateAfter.Duration != b.LateAfter.Duration:
		return "lateAfter"
	}
	return ""
}
