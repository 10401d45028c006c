package reported

import (
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func node(memory, allocatable int64) Node {
	return Node{ClassKey: ClassKey{Class{"default", "1"}, Key{"m5.large", "ami-1"}},
		Capacity: capacity.Resources{"cpu": 2000, "memory": memory, "pods": 29}, Allocatable: capacity.Resources{"cpu": 1930, "memory": allocatable, "pods": 29}}
}

// The smallest of the last eight nodes counts: what one node reports is forgotten when eight others have followed.
func TestSmallestOfTheLastNodes(t *testing.T) {
	n := NewNodes()
	key := node(0, 0).ClassKey
	if !n.See(node(7000*mi+5, 6000*mi)) || n.Now().Memory(key.Key) != 7000*mi || n.Now().Kept(key) != (Kept{CPU: 70, Memory: 1001 * mi, Pods: 29}) {
		t.Errorf("after the first node: %d bytes, %+v", n.Now().Memory(key.Key), n.Now().Kept(key))
	}
	for i := range 7 {
		if n.See(node(7700*mi, 7000*mi)) || n.Now().Memory(key.Key) != 7000*mi {
			t.Errorf("after %d more nodes: %d MiB", i+1, n.Now().Memory(key.Key)/mi)
		}
	}
	if !n.See(node(7690*mi, 7000*mi)) || n.Now().Memory(key.Key) != 7690*mi || n.Now().Kept(key).Memory != 700*mi {
		t.Errorf("after eight more nodes: %d MiB, %+v", n.Now().Memory(key.Key)/mi, n.Now().Kept(key))
	}
	if n.Recall(key, 1*mi, Kept{CPU: 1}) {
		t.Error("what was recorded counts more than what nodes report")
	}
	n.ForgetOthers(Class{"default", "2"})
	if n.Now().Kept(key) != (Kept{}) || n.Now().Memory(key.Key) != 7690*mi {
		t.Errorf("another version of the class: %+v", n.Now().Kept(key))
	}
	if !n.Recall(ClassKey{Class{"default", "2"}, Key{"m5.large", "ami-2"}}, 100*mi+1, Kept{CPU: 5}) || n.Now().Memory(Key{"m5.large", "ami-2"}) != 100*mi {
		t.Error("what was recorded is not recalled")
	}
	if n.See(Node{}) {
		t.Error("a node without type and image teaches something")
	}
}
