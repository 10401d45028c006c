package derived

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// SetProfiles sets the profiles; without any, all pods are treated alike. Call it before anything is derived. Profiles may share a pool or a
// class of their arguments only if they give it the same spec.
func (d *Objects) SetProfiles(profiles []karpenter.Profile) error {
	type claimed struct {
		by string
		o  any
	}
	all := map[string]claimed{}
	share := func(p karpenter.Profile, kind, name, origin string, spec any) error {
		key := kind + " " + name
		if before, ok := all[key]; ok && !equality.Semantic.DeepEqual(before.o, spec) {
			return fmt.Errorf("profiles %q and %q define %s %q differently: give one of them another name", before.by, p.Scheduler, kind, origin)
		}
		all[key] = claimed{p.Scheduler, spec}
		return nil
	}
	for _, p := range profiles {
		for _, nc := range p.Classes {
			if err := share(p, d.parts.Class.ArgsField, nc.GetName(), nc.GetAnnotations()[objects.AnnotationOrigin], part(nc, "Spec").Interface()); err != nil {
				return err
			}
		}
		for _, np := range p.Pools {
			if err := share(p, "nodePools", np.Name, np.Annotations[objects.AnnotationOrigin], np.Spec); err != nil {
				return err
			}
		}
	}
	d.profiles = profiles
	return nil
}

// DeriveArgs creates the pools and classes of profiles' arguments.
func (d *Objects) DeriveArgs() {
	d.deriving.Lock()
	defer d.deriving.Unlock()
	for _, p := range d.profiles {
		for _, nc := range p.Classes {
			d.putClass(nc.GetName(), copyOf(nc))
		}
		for _, np := range p.Pools {
			d.putPool(np.Name, np.DeepCopy())
		}
	}
}

// RetireArgs handles the claims of a pool that was removed from the arguments: no pod is evicted, nothing new is launched there, and
// the nodes are terminated when they are empty. Other pools have an object whose deletion triggers this; these have none. used reports
// whether the pool has claims.
func (d *Objects) RetireArgs(pool string, used func() bool) {
	if now := d.Pool(pool); !strings.HasPrefix(pool, karpenter.ArgsPrefix) || now != nil && karpenter.Malformed(now) == "" {
		return
	}
	d.deriving.Lock()
	defer d.deriving.Unlock()
	np := d.Pool(pool)
	switch used := used(); {
	case np == nil && used:
		np = &karpv1.NodePool{}
		np.Name, np.UID = pool, types.UID(pool)
		np.Annotations = map[string]string{
			objects.AnnotationOrigin: strings.TrimPrefix(pool, karpenter.ArgsPrefix), objects.AnnotationMalformed: "the profiles' arguments no longer contain this pool",
		}
		np.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
		np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		d.putPool(pool, np)
	case np != nil && karpenter.Malformed(np) != "" && !used:
		d.putPool(pool, nil)
	}
}
