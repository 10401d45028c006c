package reported

import (
	"encoding/json"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
)

// Record is what Dovetail has learned from the nodes of a class because it is published nowhere: the value of objects.AnnotationLearned.
type Record struct {
	// NodeName is the form of the nodes' names.
	NodeName bootstrap.NameForm `json:"nodeName,omitempty"`
	// Memory is the nodes' memory capacity in bytes, by image and instance type, for images that the class uses now.
	Memory map[string]map[string]int64 `json:"memory,omitempty"`
	// Kept is what kubelets keep from pods, by image and instance type, where user data doesn't tell it. Class is the hash of the version of the
	// class to which Kept applies.
	Class string                     `json:"class,omitempty"`
	Kept  map[string]map[string]Kept `json:"kept,omitempty"`
}

// With returns what this process knows together with what is recorded, of the images in use. Where both differ, the recorded form of names counts,
// the smaller memory, and the larger amounts kept from pods. So several Dovetails, each with its own nodes, don't take turns in overwriting each
// other's record.
func (l Record) With(record string) Record {
	var r Record
	if err := json.Unmarshal([]byte(record), &r); err != nil {
		return l
	}
	if r.NodeName != bootstrap.NameUnknown {
		l.NodeName = r.NodeName
	}
	for image, types := range l.Memory {
		for name, bytes := range r.Memory[image] {
			if had, ok := types[name]; !ok || bytes < had {
				types[name] = bytes
			}
		}
	}
	if l.Class != r.Class {
		return l
	}
	for image, types := range l.Kept {
		for name, kept := range r.Kept[image] {
			if had, ok := types[name]; ok {
				kept = kept.Most(had)
			}
			types[name] = kept
		}
	}
	return l
}
