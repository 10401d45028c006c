package provision

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// mostCommitted, in dollars per hour, is more than any account commits: a larger number is a yearly amount, or a mistake.
const mostCommitted = 1e6

// validateCommitments checks the commitments.
func (a *Args) validateCommitments() (errs field.ErrorList) {
	for i := range a.Commitments {
		m, at := &a.Commitments[i], field.NewPath("commitments").Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "reports call the commitment by it"))
		} else {
			for _, msg := range validation.IsDNS1123Label(m.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), m.Name, msg))
			}
		}
		if m.Name != "" && slices.ContainsFunc(a.Commitments[:i], func(other Commitment) bool { return other.Name == m.Name }) {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		if d := m.DollarsPerHour; !(d > 0) || d > mostCommitted || capacity.MicroDollarsOf(d) == 0 {
			errs = append(errs, field.Invalid(at.Child("dollarsPerHour"), d, "must be the amount that is committed, in dollars per hour"))
		}
		if f := m.RateFactor; !(f > 0) || f > 1 || math.IsNaN(f) {
			errs = append(errs, field.Invalid(at.Child("rateFactor"), f, "must be the plan's rates as a fraction of list prices: 0 < x <= 1"))
		}
		for j, family := range m.InstanceFamilies {
			switch {
			case !familyForm.MatchString(family):
				errs = append(errs, field.Invalid(at.Child("instanceFamilies").Index(j), family, "is not the name of an instance family"))
			case slices.Contains(m.InstanceFamilies[:j], family):
				errs = append(errs, field.Duplicate(at.Child("instanceFamilies").Index(j), family))
			}
		}
	}
	return errs
}

// Committed returns the commitments as plans count them: their amounts in micro-dollars per hour.
func (a *Args) Committed() []capacity.Commitment {
	var out []capacity.Commitment
	for i := range a.Commitments {
		m := &a.Commitments[i]
		out = append(out, capacity.Commitment{Name: m.Name, MicroDollars: capacity.MicroDollarsOf(m.DollarsPerHour), RateFactor: m.RateFactor, Families: m.InstanceFamilies})
	}
	return out
}
