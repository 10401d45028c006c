package simulate

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	storageinformers "k8s.io/client-go/informers/storage"
	storageinformersv1 "k8s.io/client-go/informers/storage/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
)

// supposing is the scheduler's informer factory, except that VolumeBinding gets a separate lister for storage capacity.
type supposing struct {
	informers.SharedInformerFactory
	world *World
}

func (s supposing) Storage() storageinformers.Interface {
	return supposingStorage{s.SharedInformerFactory.Storage(), s.world}
}

type supposingStorage struct {
	storageinformers.Interface
	world *World
}

func (s supposingStorage) V1() storageinformersv1.Interface {
	return supposingV1{s.Interface.V1(), s.world}
}

type supposingV1 struct {
	storageinformersv1.Interface
	world *World
}

func (s supposingV1) CSIStorageCapacities() storageinformersv1.CSIStorageCapacityInformer {
	return supposingCapacities{s.Interface.CSIStorageCapacities(), s.world}
}

type supposingCapacities struct {
	storageinformersv1.CSIStorageCapacityInformer
	world *World
}

func (s supposingCapacities) Lister() storagelisters.CSIStorageCapacityLister {
	return supposedLister{s.CSIStorageCapacityInformer.Lister(), s.world}
}

// supposedLister returns what has been published and, for the hypothetical node that is being checked, what will be.
type supposedLister struct {
	storagelisters.CSIStorageCapacityLister
	world *World
}

func (l supposedLister) List(selector labels.Selector) ([]*storagev1.CSIStorageCapacity, error) {
	out, err := l.CSIStorageCapacityLister.List(selector)
	if err != nil || l.world.trying == nil {
		return out, err
	}
	return append(out, l.world.storage.Supposed(l.world.trying.Labels)...), nil
}
