package aws

import "testing"

// InstanceTypes has looked a class up; the class is deleted and created again before InstanceTypes has computed the types. What was computed
// for the deleted class goes with it.
func TestDeletedClassIsNotTheNewOne(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	old := w.classes.get("default")
	w.DeleteNodeClass("default")
	again := nodeClass()
	again.UID = "another"
	again.Spec.SubnetSelectorTerms[0].Tags = map[string]string{"none": "such"}
	again.Spec.SubnetSelectorTerms[0].ID = ""
	w.SetNodeClass(again)
	late := w.offer(old, old.offers.now.Load())
	late.version = w.version.Load()
	old.offers.now.Store(late)
	if types, err := w.InstanceTypes("default"); err == nil {
		t.Errorf("%d types of the deleted class are offered for the new one", len(types))
	}
	if w.DeleteNodeClass("default"); w.classes.get("default") != nil {
		t.Error("the class, which holds its types, is kept")
	}
}
