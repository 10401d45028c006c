package manifest

import (
	"runtime"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// listing is a Listing that was split.
type listing struct {
	docs []document
	errs []error
}

// listed splits what an API server has answered and decodes the objects, several answers at a time: with 20,000 pods this is most of the work that a look
// at a cluster takes. An object whose decoding fails is left to reader.take, which says why.
func listed(all []Listing) []listing {
	out := make([]listing, len(all))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, l := range all {
		group.Go(func() error {
			out[i].docs, out[i].errs = split("the cluster's "+l.Name, l.JSON)
			for j := range out[i].docs {
				out[i].docs[j].decodeListed()
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return out
}

// decodeListed decodes an object of a kind that is understood, if nothing has to be added to its name first.
func (d *document) decodeListed() {
	gv, err := schema.ParseGroupVersion(d.head.APIVersion)
	if err != nil {
		return
	}
	k, ok := understood[schema.GroupKind{Group: gv.Group, Kind: d.head.Kind}]
	m := &d.head.Metadata
	if !ok || k.workload || gv.Version != k.version || m.Name == "" || m.Namespace == "" && !k.cluster {
		return
	}
	if object, _, errs := k.decode(d, nil, false); len(errs) == 0 {
		d.decoded = object
	}
}
