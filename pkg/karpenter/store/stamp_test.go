package store

import (
	"errors"
	"maps"
	"sync/atomic"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// karpenters returns a claim of pool and class default as an older version of Karpenter created it.
func karpenters(name string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	pool := testPool("default")
	nc := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "uid-of-claim-1", Finalizers: []string{karpv1.TerminationFinalizer}, CreationTimestamp: metav1.Time{Time: start},
			Labels: map[string]string{karpv1.NodePoolLabelKey: "default"},
			Annotations: map[string]string{
				karpv1.NodePoolHashAnnotationKey: "older", karpv1.NodePoolHashVersionAnnotationKey: "v2",
				ec2nc.AnnotationEC2NodeClassHash: "older", ec2nc.AnnotationEC2NodeClassHashVersion: "v4",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: "default", UID: pool.UID}},
		},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: pool.Spec.Template.Spec.NodeClassRef, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}},
	}
	for _, f := range change {
		f(nc)
	}
	return nc
}

func hashes(o client.Object) map[string]string {
	out := map[string]string{}
	for _, key := range []string{
		karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey, ec2nc.AnnotationEC2NodeClassHash, ec2nc.AnnotationEC2NodeClassHashVersion,
	} {
		if value, ok := o.GetAnnotations()[key]; ok {
			out[key] = value
		}
	}
	return out
}

func TestHashesAreNotedAndClaimsOfKarpenterStampedAnew(t *testing.T) {
	drifted := karpenters("drifted", func(nc *karpv1.NodeClaim) {
		nc.Annotations[karpv1.NodePoolHashAnnotationKey], nc.Annotations[ec2nc.AnnotationEC2NodeClassHash] = "of another pool", "of another class"
		nc.StatusConditions().SetTrue(karpv1.ConditionTypeDrifted)
	})
	// As the same version of Karpenter has left them: one of the present template and class, and one of another.
	now := func(name, pool, class string) *karpv1.NodeClaim {
		return karpenters(name, func(nc *karpv1.NodeClaim) {
			nc.Annotations = map[string]string{
				karpv1.NodePoolHashAnnotationKey: pool, karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion,
				ec2nc.AnnotationEC2NodeClassHash: class, ec2nc.AnnotationEC2NodeClassHashVersion: ec2nc.EC2NodeClassHashVersion,
			}
		})
	}
	same, behind := now("same", testPool("default").Hash(), testClass("default").Hash(ptr.To("ca"))), now("behind", "of another pool", "of another class")
	other := karpenters("other", func(nc *karpv1.NodeClaim) {
		nc.Labels, nc.Spec.NodeClassRef = map[string]string{karpv1.NodePoolLabelKey: "another"}, &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "another"}
	})
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"), karpenters("sound"), drifted, same, behind, other))
	ca := make(chan string, 1) // not known at first
	known := ""
	w.sources.ClusterCA = func() (string, bool) {
		select {
		case known = <-ca:
		default:
		}
		return known, known != ""
	}
	w.leading()

	pool := map[string]string{karpv1.NodePoolHashAnnotationKey: testPool("default").Hash(), karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion}
	w.eventually("the pool bears its hash", func() bool { return cmp.Equal(pool, hashes(w.getPool("default"))) })
	w.eventually("the class has its finalizer", func() bool { return len(w.getClass("default").Finalizers) == 1 })
	if got := hashes(w.getClass("default")); len(got) > 0 {
		t.Errorf("the class bears %v before the cluster's certificates are known", got)
	}
	ca <- "ca"
	w.status.changed(karpenter.NodeClasses(nodeclass.Kind), "default")
	class := map[string]string{ec2nc.AnnotationEC2NodeClassHash: nodeclass.Kind.Hash(testClass("default"), "ca"), ec2nc.AnnotationEC2NodeClassHashVersion: ec2nc.EC2NodeClassHashVersion}
	w.eventually("the class bears its hash", func() bool { return cmp.Equal(class, hashes(w.getClass("default"))) })

	sound := maps.Clone(pool)
	maps.Copy(sound, class)
	for name, want := range map[string]map[string]string{
		"sound": sound,
		"drifted": {
			karpv1.NodePoolHashAnnotationKey: "of another pool", karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion,
			ec2nc.AnnotationEC2NodeClassHash: "of another class", ec2nc.AnnotationEC2NodeClassHashVersion: ec2nc.EC2NodeClassHashVersion,
		},
		"same": sound, "behind": hashes(behind), "other": hashes(other),
	} {
		nc := &karpv1.NodeClaim{}
		if err := w.api.Get(w.ctx, client.ObjectKey{Name: name}, nc); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, hashes(nc)); diff != "" {
			t.Errorf("claim %s (-want +got):\n%s", name, diff)
		}
	}

	created, err := w.Create(w.ctx, testClaim("default-new"))
	if err != nil {
		t.Fatal(err)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: created.Name}, nc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sound, hashes(nc)); diff != "" {
		t.Errorf("a claim of ours (-want +got):\n%s", diff)
	}

	// The spec changes: the pool's hash follows, the claims keep the hash of what they were created from.
	np := w.getPool("default")
	w.update(np, func() { np.Spec.Template.Labels["team"] = "b" })
	w.eventually("the pool's hash follows its template", func() bool {
		return hashes(w.getPool("default"))[karpv1.NodePoolHashAnnotationKey] == np.Hash() && np.Hash() != sound[karpv1.NodePoolHashAnnotationKey]
	})
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: created.Name}, nc); err != nil || !cmp.Equal(sound, hashes(nc)) {
		t.Errorf("the claim's own hash changed with the pool: %v, %v", hashes(nc), err)
	}
}

// While another controller owns the objects, both would overwrite each other's hashes for ever.
func TestNothingIsWrittenOnHold(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), readyClass("default"), karpenters("one")))
	held := make(chan struct{})
	var asked atomic.Int32
	w.sources.Hold = func() error {
		asked.Add(1)
		select {
		case <-held:
			return nil
		default:
			return errors.New("Karpenter holds its lease")
		}
	}
	w.leading()
	w.eventually("both have been looked at", func() bool { return asked.Load() >= 2 })
	if got := w.getPool("default"); len(got.Status.Conditions) > 0 || len(hashes(got)) > 0 {
		t.Errorf("written on hold: %v, %v", got.Status.Conditions, hashes(got))
	}
	if got := w.getClass("default"); len(got.Finalizers) > 0 {
		t.Errorf("written on hold: %v", got.Finalizers)
	}
	close(held)
	w.eventually("the pool is looked at again", func() bool { w.clock.Step(holdRetry); return len(hashes(w.getPool("default"))) == 2 })
	w.eventually("the class is looked at again", func() bool { w.clock.Step(holdRetry); return len(w.getClass("default").Finalizers) == 1 })
}

// A derived pool has no object that remembers the version of its hash: its claims tell.
func TestClaimsOfADerivedPoolAreStampedAnew(t *testing.T) {
	const pool = "provisioner_old"
	older := karpenters("older", func(nc *karpv1.NodeClaim) {
		nc.Labels[karpv1.NodePoolLabelKey] = pool
		nc.Annotations[karpv1.NodePoolHashVersionAnnotationKey] = "dovetail-v1"
	})
	drifted := karpenters("drifted", func(nc *karpv1.NodeClaim) {
		nc.Labels[karpv1.NodePoolLabelKey] = pool
		nc.Annotations[karpv1.NodePoolHashAnnotationKey], nc.Annotations[karpv1.NodePoolHashVersionAnnotationKey] = "another", karpv1.NodePoolHashVersion
	})
	w := newWorld(t, newFakeAPI(provisioner(t, inline+`}`), older, drifted))
	w.leading()
	get := func(name string) map[string]string {
		nc := &karpv1.NodeClaim{}
		if err := w.api.Get(w.ctx, client.ObjectKey{Name: name}, nc); err != nil {
			t.Fatal(err)
		}
		return nc.Annotations
	}
	w.eventually("the claim bears the hash of its pool", func() bool {
		np := w.poolObject(pool)
		return np != nil && karpenter.PoolStamp(np).On(get("older"))
	})
	if got := get("drifted")[karpv1.NodePoolHashAnnotationKey]; got != "another" {
		t.Errorf("a hash of this version was replaced by %s", got)
	}
}
