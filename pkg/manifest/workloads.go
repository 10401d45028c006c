package manifest

import (
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	hashutil "k8s.io/kubernetes/pkg/util/hash"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Pods returns the pods that need capacity: the given ones that have not finished, and those that the controllers of workloads would
// create beside existing ones. Claims and ReplicaSets of these pods are added to the set. What can't be done as asked for is in the
// set's warnings.
//
// DaemonSets create none here: their pods are added per node.
func (s *Set) Pods() []*corev1.Pod {
	m := newMaker(s)
	for _, pod := range All[*corev1.Pod](s) {
		m.given(pod)
	}
	for i := range s.entries {
		e := &s.entries[i]
		if !e.workload {
			continue
		}
		switch o := e.object.(type) {
		case *appsv1.Deployment:
			m.deployment(o)
		case *appsv1.ReplicaSet:
			m.replicaSet(o)
		case *appsv1.StatefulSet:
			m.statefulSet(o)
		case *batchv1.Job:
			m.job(o)
		}
	}
	for _, ds := range All[*appsv1.DaemonSet](s) {
		m.admit.known(&ds.Spec.Template.Spec, "DaemonSet "+ds.Namespace+"/"+ds.Name)
	}
	for _, pod := range m.pods {
		if pod.Spec.NodeName == "" {
			m.ephemeralClaims(pod)
		}
	}
	m.completeClaims()
	return m.pods
}

// maker creates the pods of workloads.
type maker struct {
	set  *Set
	pods []*corev1.Pod
	// there are the pods that exist, by "namespace/kind/name" of their controller.
	there  map[string][]*corev1.Pod
	admit  *admission
	unique map[string]int  // pods per generated name
	known  map[string]bool // names of claims; nil: not read yet
}

func newMaker(s *Set) *maker {
	m := &maker{set: s, there: map[string][]*corev1.Pod{}, admit: newAdmission(s), unique: map[string]int{}}
	for i := range s.entries {
		pod, ok := s.entries[i].object.(*corev1.Pod)
		if ok && s.entries[i].existing && !objects.Ended(pod) && pod.DeletionTimestamp == nil {
			if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
				key := pod.Namespace + "/" + ref.Kind + "/" + ref.Name
				m.there[key] = append(m.there[key], pod)
			}
		}
	}
	return m
}

// given adds a pod that was read.
func (m *maker) given(pod *corev1.Pod) {
	if objects.Ended(pod) {
		return
	}
	if pod.Spec.Priority == nil {
		m.admit.pod(pod, "Pod "+pod.Namespace+"/"+pod.Name)
	}
	m.pods = append(m.pods, pod)
}

// generate returns a name with the prefix. Controllers append random letters; here it is a number.
func (m *maker) generate(prefix string) string {
	m.unique[prefix]++
	return prefix + strconv.Itoa(m.unique[prefix])
}

func (m *maker) deployment(d *appsv1.Deployment) {
	hash := fnv.New32a()
	hashutil.DeepHashObject(hash, d.Spec.Template)
	revision := rand.SafeEncodeString(strconv.Itoa(int(hash.Sum32())))
	name := d.Name + "-" + revision
	there := 0
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return // checked when it was read
	}
	for key, pods := range m.there {
		if strings.HasPrefix(key, d.Namespace+"/ReplicaSet/"+d.Name+"-") {
			for _, pod := range pods {
				if selector.Matches(labels.Set(pod.Labels)) {
					there++
				}
			}
		}
	}
	b := m.siblings(d, &d.Spec.Template, "Deployment", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: uidOf("ReplicaSet", d.Namespace, name)})
	b.pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = revision
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: name, UID: uidOf("ReplicaSet", d.Namespace, name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector.DeepCopy(), Template: d.Spec.Template}}
	if rs.Spec.Selector.MatchLabels == nil {
		rs.Spec.Selector.MatchLabels = map[string]string{}
	}
	rs.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = revision
	m.set.add(rs)
	for range int(*d.Spec.Replicas) - there {
		m.make(b, m.generate(name+"-"))
	}
}

func (m *maker) replicaSet(rs *appsv1.ReplicaSet) {
	if metav1.GetControllerOfNoCopy(rs) != nil {
		return // created by a Deployment, and so are its pods
	}
	b := m.siblings(rs, &rs.Spec.Template, "ReplicaSet", *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
	for range int(*rs.Spec.Replicas) - len(m.there[rs.Namespace+"/ReplicaSet/"+rs.Name]) {
		m.make(b, m.generate(rs.Name+"-"))
	}
}

func (m *maker) statefulSet(set *appsv1.StatefulSet) {
	taken := map[string]bool{}
	for _, pod := range m.there[set.Namespace+"/StatefulSet/"+set.Name] {
		taken[pod.Name] = true
	}
	b := m.siblings(set, &set.Spec.Template, "StatefulSet", *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
	first := 0
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	own := b.pod.Labels
	for i := first; i < first+int(*set.Spec.Replicas); i++ {
		name := set.Name + "-" + strconv.Itoa(i)
		if taken[name] {
			continue
		}
		b.pod.Labels = maps.Clone(own)
		b.pod.Labels[appsv1.StatefulSetPodNameLabel], b.pod.Labels[appsv1.PodIndexLabel] = name, strconv.Itoa(i)
		m.claims(set, m.make(b, name), i)
	}
}

// job creates the pods that run at the same time.
func (m *maker) job(job *batchv1.Job) {
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		m.set.warn("Job %s/%s is suspended: it needs no capacity", job.Namespace, job.Name)
		return
	}
	n := int(*job.Spec.Parallelism)
	if c := job.Spec.Completions; c != nil {
		n = min(n, int(*c)-int(job.Status.Succeeded))
	}
	b := m.siblings(job, &job.Spec.Template, "Job", *metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job")))
	indexed := job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
	own := b.pod.Labels
	there := len(m.there[job.Namespace+"/Job/"+job.Name])
	for i := there; i < n; i++ {
		if !indexed {
			m.make(b, m.generate(job.Name+"-"))
			continue
		}
		b.pod.Labels = maps.Clone(own)
		b.pod.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(i)
		m.make(b, fmt.Sprintf("%s-%d", job.Name, i))
	}
}

// siblings are the pods of one workload: they share everything but name and UID.
type siblings struct{ pod corev1.Pod }

func (m *maker) siblings(of client.Object, template *corev1.PodTemplateSpec, kind string, owner metav1.OwnerReference) *siblings {
	t := template.DeepCopy()
	yes := true
	owner.Controller = &yes
	b := &siblings{corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}}
	b.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	b.pod.Namespace, b.pod.OwnerReferences = of.GetNamespace(), []metav1.OwnerReference{owner}
	if b.pod.Labels == nil {
		b.pod.Labels = map[string]string{}
	}
	legacyscheme.Scheme.Default(&b.pod) // a template only has the defaults of templates; the rule that requests follow limits applies to pods
	m.admit.pod(&b.pod, kind+" "+of.GetNamespace()+"/"+of.GetName())
	return b
}

// make adds a pod of the workload. Its spec shares everything with the others' except the volumes.
func (m *maker) make(b *siblings, name string) *corev1.Pod {
	pod := b.pod
	pod.Name, pod.UID = name, uidOf("Pod", pod.Namespace, name)
	m.pods = append(m.pods, &pod)
	return &pod
}
