package pending

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// NamedBy returns how many pods that name the ProvisioningRequest have a node, or had one until they finished. It reads all pods of the namespace.
func (p *Pods) NamedBy(namespace, request string) (n int) {
	if p.cfg.Lister == nil {
		return 0
	}
	all, err := p.cfg.Lister.Pods(namespace).List(labels.Everything())
	if err != nil { // a lister on an informer's store doesn't fail
		return 0
	}
	for _, pod := range all {
		if objects.RequestOf(pod) == request && (pod.Spec.NodeName != "" || objects.Ended(pod)) {
			n++
		}
	}
	return n
}
