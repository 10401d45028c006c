package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// Whatever ends a node: its pods leave it in order, its instance ends after them, then Node and claim are gone, and who has a
// controller runs elsewhere. Alone: it is fifteen tests in one.
func TestTheEndOfNodes(t *testing.T) {
	e := start(t, func(s *setting) { s.lives = 10 * time.Minute })
	e.apply(nodeClass)
	replicaSets(t, e.c.AdminConfig(), 200)
	ended := e.terminations()
	deleted := func(what func(s *scene, c *karpv1.NodeClaim) client.Object) sceneOf {
		return sceneOf{play: func(s *scene) {
			s.web(3)
			c := s.machine()
			s.delete(what(s, c))
			s.over(c)
			if left := ended.of(c); len(left) > 0 {
				s.Errorf("pods %v were on the node when its instance was told to end", left)
			}
			for _, p := range s.alive(3) {
				if p.Spec.NodeName == c.Status.NodeName {
					s.Errorf("pod %s is on the node that has ended", p.Name)
				}
			}
		}}
	}
	e.scenes(map[string]sceneOf{
		"node deleted":  deleted(func(s *scene, c *karpv1.NodeClaim) client.Object { return s.node(c) }),
		"claim deleted": deleted(func(_ *scene, c *karpv1.NodeClaim) client.Object { return c }),
		"pool deleted": {play: func(s *scene) {
			s.web(3)
			c := s.machine()
			s.delete(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
			s.over(c)
			if left := ended.of(c); len(left) > 0 {
				s.Errorf("pods %v were on the node when its instance was told to end", left)
			}
		}},
		"a budget blocks and then allows": {play: blockedByBudget},
		"grace period":                    {change: []string{"    spec:\n", "    spec:\n      terminationGracePeriod: 20s\n"}, play: gracePeriod},
		"do not disrupt":                  {play: doNotDisrupt},
		"instance lost":                   {play: func(s *scene) { lost(s, false) }},
		"instance lost while draining":    {play: func(s *scene) { lost(s, true) }},
		"nobody owns them":                {play: nobodyOwns},
		"deleted while pods come":         {play: deletedWhilePodsCome},
		"deleted while it boots":          {play: deletedWhileItBoots},
		"empty":                           {change: []string{"consolidateAfter: Never", "consolidateAfter: 1s"}, play: empty},
		"volumes":                         {play: volumes},
		"groups":                          {play: groups},
		"expiry":                          {change: []string{"    spec:\n", "    spec:\n      expireAfter: 48s\n"}, play: expiry},
	})
	e.noDoubles()
}

func blockedByBudget(s *scene) {
	pods := s.web(3)
	c := s.machine()
	all := intstr.FromInt32(3)
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": s.name}}}}
	s.create(pdb)
	allow := func(n int32) { // no disruption controller runs here
		pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, DisruptionsAllowed: n, CurrentHealthy: 3, DesiredHealthy: 3, ExpectedPods: 3}
		if err := s.api.Status().Update(s.ctx, pdb); err != nil {
			s.Fatal(err)
		}
	}
	allow(0)
	s.delete(s.node(c))
	s.wantEvent(c.Status.NodeName, "FailedDraining", "would violate its disruption budget")
	s.untouched(pods)
	if !s.lives(c) {
		s.Error("the instance has ended")
	}
	allow(3)
	s.over(c)
	s.alive(3)
}

// Each pod is deleted when its own grace period would end with the node's, even if it is protected, and not before.
func gracePeriod(s *scene) {
	seconds := map[string]int64{s.name + "-0": 15, s.name + "-1": 4}
	s.pods(s.name, 2, "100m", "64Mi", s.here, func(p *corev1.Pod) {
		p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		grace := seconds[p.Name]
		p.Spec.TerminationGracePeriodSeconds = &grace
	})
	s.alive(2)
	c := s.machine()
	recording, err := record.Start(s.ctx, s.api, &corev1.PodList{}, &karpv1.NodeClaimList{})
	if err != nil {
		s.Fatal(err)
	}
	s.delete(c)
	s.over(c)
	events, err := recording.Events(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	var deadline time.Time
	for _, ev := range events {
		switch o := ev.Object.(type) {
		case *karpv1.NodeClaim:
			if text := o.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; o.UID == c.UID && text != "" {
				if deadline, err = time.Parse(time.RFC3339, text); err != nil {
					s.Fatal(err)
				}
			}
		case *corev1.Pod:
			own, ours := seconds[o.Name]
			if !ours || o.DeletionTimestamp == nil || *o.DeletionGracePeriodSeconds == 0 {
				continue // the kubelet's final deletion has no grace period
			}
			asked := o.DeletionTimestamp.Add(-time.Duration(*o.DeletionGracePeriodSeconds) * time.Second)
			if early := deadline.Add(-time.Duration(own) * time.Second); asked.Before(early.Add(-time.Second)) {
				s.Errorf("pod %s was told to end at %s, not before %s", o.Name, asked, early)
			}
			if *o.DeletionGracePeriodSeconds > own {
				s.Errorf("pod %s got %d s to end, its own are %d", o.Name, *o.DeletionGracePeriodSeconds, own)
			}
		}
	}
	if deadline.IsZero() || deadline.Before(c.CreationTimestamp.Time) {
		s.Errorf("the deadline on the claim is %s", deadline)
	}
}

// Three annotations ask not to be disrupted: the drain evicts the other pods and waits for the ones that have one.
func doNotDisrupt(s *scene) {
	wishes := []map[string]string{{"karpenter.sh/do-not-disrupt": "true"}, {"karpenter.sh/do-not-evict": "true"}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, nil}
	i := 0
	s.pods(s.name, len(wishes), "100m", "64Mi", s.here, func(p *corev1.Pod) { p.Annotations, i = wishes[i], i+1 })
	all := s.alive(len(wishes))
	plainPod := slices.IndexFunc(all, func(p corev1.Pod) bool { return p.Name == fmt.Sprint(s.name, "-3") })
	guarded := slices.Delete(slices.Clone(all), plainPod, plainPod+1)
	c := s.machine()
	s.delete(s.node(c))
	s.alive(len(guarded))
	s.wantEvent(c.Status.NodeName, "FailedDraining", "which asks not to be disrupted")
	s.untouched(guarded)
	for i := range guarded {
		s.untouched(guarded[i:])
		guarded[i].Annotations = nil
		s.until("the wish to be taken back", func() (bool, string) {
			err := s.api.Patch(s.ctx, &guarded[i], client.RawPatch("application/merge-patch+json", []byte(
				`{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":null,"karpenter.sh/do-not-evict":null,"cluster-autoscaler.kubernetes.io/safe-to-evict":null}}}`)))
			return client.IgnoreNotFound(err) == nil, fmt.Sprint(err)
		})
		s.alive(len(guarded) - 1 - i)
	}
	s.over(c)
}

// Nothing delays the cleanup after an instance that is gone: no disruption budget, no annotation, no finalizer.
func lost(s *scene, draining bool) {
	s.pods(s.name, 2, "100m", "64Mi", s.here, func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"} })
	s.alive(2)
	c := s.machine()
	node := s.node(c)
	if draining {
		s.delete(node)
		s.wantEvent(node.Name, "FailedDraining", "which asks not to be disrupted")
	}
	s.sim.Kill(c.Status.ProviderID[strings.LastIndexByte(c.Status.ProviderID, '/')+1:])
	// The node lifecycle controller sets this condition after 50 s without a heartbeat.
	s.until("the node to be not Ready", func() (bool, string) {
		err := s.api.Status().Patch(s.ctx, node.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json", []byte(
			`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`)))
		return client.IgnoreNotFound(err) == nil, fmt.Sprint(err)
	})
	s.over(c)
	s.until("its pods to be gone", func() (bool, string) { return len(s.podsOf(s.name)) == 0, fmt.Sprint(len(s.podsOf(s.name))) })
}

// An instance of this cluster without NodeClaim, and a Node of ours without NodeClaim whose instance is gone.
func nobodyOwns(s *scene) {
	cloud := awsec2.NewFromConfig(s.sim.AdminConfig())
	images, err := cloud.DescribeImages(s.ctx, &awsec2.DescribeImagesInput{})
	if err != nil || len(images.Images) == 0 {
		s.Fatalf("images: %v", err)
	}
	image := images.Images[slices.IndexFunc(images.Images, func(i types.Image) bool { return i.Architecture == types.ArchitectureValuesX8664 })]
	subnets, err := cloud.DescribeSubnets(s.ctx, &awsec2.DescribeSubnetsInput{})
	if err != nil || len(subnets.Subnets) == 0 {
		s.Fatalf("subnets: %v", err)
	}
	run := func() (id, providerID string) {
		made, err := cloud.RunInstances(s.ctx, &awsec2.RunInstancesInput{
			ImageId: image.ImageId, InstanceType: types.InstanceTypeM5Large, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: subnets.Subnets[0].SubnetId,
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{
				{Key: aws.String("kubernetes.io/cluster/dovetail"), Value: aws.String("owned")}, {Key: aws.String("karpenter.sh/nodepool"), Value: aws.String(s.name)}}}},
		})
		if err != nil {
			s.Fatal(err)
		}
		in := made.Instances[0]
		return *in.InstanceId, "aws:///" + *in.Placement.AvailabilityZone + "/" + *in.InstanceId
	}
	id, _ := run()
	dead, providerID := run()
	s.sim.Kill(dead)
	shell := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-shell", Labels: map[string]string{karpv1.NodePoolLabelKey: s.name}, Finalizers: []string{karpv1.TerminationFinalizer}},
		Spec: corev1.NodeSpec{ProviderID: providerID}}
	s.create(shell)
	s.until("the instance to end", func() (bool, string) {
		for _, in := range s.sim.Live() {
			if in.ID == id {
				return false, in.State
			}
		}
		return true, ""
	})
	s.until("the Node to go", func() (bool, string) { return s.nodes()[shell.Name] == nil, "it is there" })
}

// Pods are still being bound to a node while it is deleted. None is lost.
func deletedWhilePodsCome(s *scene) {
	s.web(2)
	c := s.machine()
	s.scale(15)
	s.until("some pods to be bound", func() (bool, string) {
		n := 0
		for _, p := range s.podsOf(s.name) {
			if p.Spec.NodeName != "" {
				n++
			}
		}
		return n > 4, fmt.Sprint(n)
	})
	s.delete(s.node(c))
	s.scale(30)
	s.over(c)
	for _, p := range s.alive(30) {
		if p.Spec.NodeName == c.Status.NodeName {
			s.Errorf("pod %s runs on a node that has ended", p.Name)
		}
	}
}

func (s *scene) scale(n int) {
	s.Helper()
	s.until("the ReplicaSet to be scaled", func() (bool, string) {
		rs := replicas(s.name, 0, "1", "1")
		err := s.api.Patch(s.ctx, rs, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
		return err == nil, fmt.Sprint(err)
	})
}

// A Node that a user deletes before its kubelet registers is terminated with its NodeClaim and instance, unless the kubelet creates
// the Node again shortly after. Either way its pods are rescheduled, and no instance is left.
func deletedWhileItBoots(s *scene) {
	ctx, stop := context.WithCancel(s.ctx)
	watched := make(chan struct{})
	var deleted []string
	go func() {
		defer close(watched)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for done := false; !done; {
			select {
			case <-ctx.Done():
				return // the host is so busy that the Node was not seen before its kubelet registered
			case <-tick.C:
			}
			var nodes corev1.NodeList
			if s.api.List(ctx, &nodes, client.MatchingLabels{sceneLabel: s.name}) != nil {
				continue
			}
			for i := range nodes.Items {
				if n := &nodes.Items[i]; n.Labels[karpv1.NodeRegisteredLabelKey] == "" {
					// With the resource version it has seen: a node that registers meanwhile would be terminated.
					if s.api.Delete(ctx, n, client.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}) == nil {
						deleted, done = append(deleted, n.Name), true
					}
				}
			}
		}
	}()
	s.web(20)
	stop()
	<-watched
	s.alive(20)
	s.until("claims and instances of deleted Nodes to be over", func() (bool, string) {
		live, ended := 0, 0
		for _, in := range s.sim.Instances() {
			switch {
			case in.Tags[karpv1.NodePoolLabelKey] != s.name:
			case in.State == "running" || in.State == "pending":
				live++
			default:
				ended++
			}
		}
		for _, c := range s.own() {
			if c.DeletionTimestamp != nil {
				return false, c.Name + " is ending"
			}
		}
		n := len(s.own())
		return n == live && live > 0, fmt.Sprintf("%d claims, %d instances, %d ended of %d whose Node was deleted", n, live, ended, len(deleted))
	})
}

// Pods are created at about the moment at which their node has been empty for long enough. It may be terminated before they are bound
// to it, but never with them.
func empty(s *scene) {
	for i := range 8 {
		name := fmt.Sprint(s.name, "-", i)
		s.pods(name, 1, "100m", "64Mi", s.here)
		s.until("the pod to run", func() (bool, string) {
			all := s.podsOf(name)
			if len(all) != 1 || all[0].DeletionTimestamp != nil || all[0].Status.Phase == corev1.PodFailed {
				s.Fatalf("the pod was ended, and not by its user: %d are left", len(all))
			}
			return all[0].Status.Phase == corev1.PodRunning, string(all[0].Status.Phase)
		})
		s.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-0"}})
		select { // the rounds use delays before and after that moment
		case <-time.After(time.Duration(700+i*100) * time.Millisecond):
		case <-s.ctx.Done():
		}
	}
	s.until("the last node to end", func() (bool, string) { return len(s.own()) == 0, fmt.Sprint(len(s.own()), " claims") })
}

// The instance is not terminated until the volumes of drained pods are detached.
func volumes(s *scene) {
	s.web(1)
	c := s.machine()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-1"}}}}
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "ebs.csi.aws.com", NodeName: c.Status.NodeName, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}}
	s.create(pv, attached)
	s.delete(c)
	s.until("the claim to wait for the volume", func() (bool, string) {
		for _, now := range s.own() {
			if cond := now.StatusConditions().Get(karpv1.ConditionTypeVolumesDetached); now.UID == c.UID && cond != nil && cond.IsUnknown() && cond.Reason == "AwaitingVolumeDetachment" {
				return true, ""
			} else if now.UID == c.UID {
				return false, fmt.Sprint(plain(now.GetConditions()))
			}
		}
		s.Fatal("the claim has ended")
		return false, ""
	})
	if !s.lives(c) {
		s.Error("the instance has ended before its volume was detached")
	}
	s.delete(attached)
	s.over(c)
}

// Ordinary pods are evicted first, then ordinary DaemonSet pods, then critical pods, then critical DaemonSet pods. Static pods stay to
// the end. A group's pods have ended when their phase says so: kubelets report that before they delete the pod, and a finalizer may keep
// the object.
func groups(s *scene) {
	s.web(1)
	c := s.machine()
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: s.name, UID: "ds", Controller: &owned}}
	}
	critical := func(p *corev1.Pod) { p.Namespace, p.Spec.PriorityClassName = "kube-system", "system-node-critical" }
	kept := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/kept"} }
	static := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	want := []string{}
	for _, kind := range []struct {
		name   string
		change []podOpt
	}{{"daemon", []podOpt{daemon, kept}}, {"critical", []podOpt{critical}}, {"critical-daemon", []podOpt{critical, daemon}}, {"static", []podOpt{static}}} {
		name := s.name + "-" + kind.name
		s.pods(name, 1, "10m", "16Mi", append(kind.change, func(p *corev1.Pod) { p.Spec.NodeName = c.Status.NodeName })...)
		s.until(name+" to run", func() (bool, string) {
			var all corev1.PodList
			if err := s.api.List(s.ctx, &all, labelled{name}); err != nil || len(all.Items) != 1 {
				return false, fmt.Sprint(len(all.Items), err)
			}
			return all.Items[0].Status.Phase == corev1.PodRunning, string(all.Items[0].Status.Phase)
		})
		want = append(want, name+"-0")
	}
	recording, err := record.Start(s.ctx, s.api, &corev1.PodList{})
	if err != nil {
		s.Fatal(err)
	}
	s.delete(s.node(c))
	s.over(c)
	s.patch(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, want[0], `{"metadata":{"finalizers":null}}`)
	events, err := recording.Events(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	var order []string
	ended := map[string]bool{}
	for _, ev := range events {
		p := ev.Object.(*corev1.Pod)
		switch {
		case !slices.Contains(want, p.Name):
		case ev.Type == watch.Deleted || objects.Ended(p):
			ended[p.Name] = true
		case p.DeletionTimestamp != nil && !slices.Contains(order, p.Name):
			for _, before := range order {
				if !ended[before] {
					s.Errorf("pod %s was told to end before %s had ended", p.Name, before)
				}
			}
			order = append(order, p.Name)
		}
	}
	if !slices.Equal(order, want) {
		s.Errorf("pods were told to end in the order %v, want %v", order, want)
	}
}

// An expiring node is drained once there is capacity for its pods on initialized nodes: the pods are down only for as long as a
// restart takes. On a host too busy to boot a node in time, the next expiry has to show this.
func expiry(s *scene) {
	recording, err := record.Start(s.ctx, s.api, &corev1.PodList{}, &karpv1.NodeClaimList{})
	if err != nil {
		s.Fatal(err)
	}
	s.web(3)
	for generation := range 3 {
		old := s.machine()
		s.over(old)
		s.alive(3)
		events, err := recording.Events(s.ctx)
		if err != nil {
			s.Fatal(err)
		}
		up := map[string]time.Time{} // by node: when it was initialized
		var deleted time.Time
		came := map[string]*corev1.Pod{}
		for _, ev := range events {
			switch o := ev.Object.(type) {
			case *karpv1.NodeClaim:
				if cond := o.StatusConditions().Get(karpv1.ConditionTypeInitialized); cond != nil && cond.IsTrue() && o.Labels[karpv1.NodePoolLabelKey] == s.name {
					up[o.Status.NodeName] = cond.LastTransitionTime.Time
				}
				if o.UID == old.UID && o.DeletionTimestamp != nil {
					deleted = o.DeletionTimestamp.Time
				}
			case *corev1.Pod:
				if o.Labels["app"] == s.name && o.Spec.NodeName != "" && !deleted.IsZero() && !o.CreationTimestamp.Time.Before(deleted) {
					came[o.Name] = o
				}
			}
		}
		if late := old.CreationTimestamp.Add(old.Spec.ExpireAfter.Duration.Abs()); !deleted.Before(late) {
			s.Logf("generation %d was drained at its deadline: its replacement took too long to boot", generation)
			continue
		}
		if len(came) != 3 {
			s.Fatalf("%d pods came after the drain had begun, want 3", len(came))
		}
		for _, p := range came {
			if at, ok := up[p.Spec.NodeName]; !ok || at.After(p.CreationTimestamp.Time) {
				s.Errorf("pod %s, made at %s, was bound to %s, which was up at %s", p.Name, p.CreationTimestamp, p.Spec.NodeName, at)
			}
		}
		return
	}
	s.Error("no node was ever replaced before its deadline")
}
