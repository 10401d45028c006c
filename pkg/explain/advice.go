package explain

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Advice is what a message of the program means, and what a user can do about it: docs/why-pending.md in short.
type Advice struct {
	// Says is the message. Three dots stand for any text, N and M for numbers.
	Says string
	// Means and Do may be empty.
	Means, Do string
}

// beingPlanned is the reason of a pod whose batch is gathered or planned.
const beingPlanned = "capacity for the pod is being planned"

// advices are looked through in this order: the first that matches counts.
var advices = []Advice{
	{"storage of class ... requested, ... at most", "no type of the pool has that much local storage", "another pool, or request less"},
	{"devices of class ... requested, ... at most", "no type of the pool is known to have devices for the pod's ResourceClaims", "declare them as in docs/design/devices.md"},
	{"its node is not Ready yet: tolerates node.kubernetes.io/not-ready for ... only, and would be evicted before its node is Ready", "the pod would be evicted before the node is Ready", "let it tolerate that taint for two minutes or more"},
	{"other nodes of its plan are being launched: pods that depend on each other by topology spread or affinity start together", "its own node is there, another one isn't", "the NodeClaims that aren't registered"},
	{"Karpenter is active in this cluster (lease ...): nothing is launched, changed or terminated until it has stopped", "", "see docs/from-karpenter.md"},
	{"its node has not registered yet, and its user data can't be read: what it leaves for pods isn't known before", "the class starts its kubelets by a script of its own, which may reserve memory that Dovetail doesn't know of", "nothing; or user data that can be read (docs/aws.md)"},
	{"its node has not registered yet, and no node of its instance type and image has shown how much memory there is for pods", "most pods of such a node are bound at once; the last few need memory that the machine may not have (docs/aws.md)", "nothing: they are bound when the kubelet has registered"},
	{"no node may be launched for pods of namespace \"...\": namespaceSelector of ProvisionArgs (...) doesn't select it", "the administrator has excluded the namespace", "a label on the namespace"},
	{"nodes cost up to $... per hour and one more would cost up to $..., the limit is $... (maxDollarsPerHour)", "a budget (docs/guard.md)", "raise it, or wait until nodes end"},
	{"its node is not Ready yet: nodes of its pool get the taint ..., which the pool does not declare", "an agent taints new nodes, and the pool doesn't say so", "add the taint to spec.template.spec.startupTaints of the pool"},
	{"of N instances that were launched together for ..., M have failed since ... and none has served: ...", "instances fail one after the other, and launches are about to be paused", "the cause at the end of the message; then docs/guard.md"},
	{"CustomResourceDefinition nodeclaims.karpenter.sh is not installed: nothing can be launched", "", "install the chart dovetail-crd"},
	{"capacity is ready for it, but another plugin ends its scheduling cycles before Binder runs", "Binder is not the first preFilter plugin", "make it the first (docs/configuration.md)"},
	{"its node is not initialized yet: uses devices, which a driver on its node has to publish", "the pod has ResourceClaims, and its node isn't initialized", "does the DRA driver's DaemonSet run on that node?"},
	{"the last nodes launched for such pods never registered; the next one is launched later: ...", "the kubelets of nodes for such pods don't join", "user data, security groups, access entry of the nodes' role"},
	{"N instances have been launched within a minute, the limit is N (maxLaunchesPerMinute)", "", "wait a minute"},
	{"the scheduler's ... filter refuses the pod on every node that could be launched for it ...", "a plugin of the profile refuses the node that would be launched, so it isn't. The reason is the plugin's own", "what the reason says. DynamicResources: without dynamicResources: true in ProvisionArgs (docs/configuration.md) no node is launched for a pod with an unallocated ResourceClaim"},
	{"no node of image ... has been initialized yet: the first of at most N was launched at ...", "a new image has to show that it works, before many are bought (newImageNodes)", "wait for one boot"},
	{"its node has not registered yet, and the NodeClaim that it belongs to isn't known", "the kubelet was faster than Dovetail's record of the launch: a moment", "wait"},
	{"no node may be launched for pods of namespace \"...\", of which nothing is known yet: ...", "the namespace has not been read yet", "wait"},
	{"its node is not initialized yet: requests ..., which a device plugin has to provide", "the kubelet has registered, the device hasn't", "does the device plugin's DaemonSet run on that node?"},
	{"no free devices of class ... have been published for its node yet (ResourceSlices)", "the node is there, its DRA driver has not published what the pod's ResourceClaims ask for", "kubectl get resourceslices; the driver's log on that node. If the driver publishes something else than was declared or learned, correct the annotation " + objects.AnnotationDevices + " of the node class"},
	{"none of N instance types is available in the zones and capacity types it allows", "EC2 has refused them within the last three minutes, or doesn't offer them there", "more types, zones or capacity types in the pool (docs/aws.md)"},
	{"its own scheduler has not bound it to the node that was launched for it", "(provisionFor) the scheduler that the pod names refuses the node", "ask that scheduler why"},
	{"its node has just appeared, and what is planned for it isn't known yet", "the kubelet was faster than Dovetail's record of the launch, and the pod wasn't planned there: a moment", "wait"},
	{"N nodes are being launched already, the limit is N (maxClaimsInFlight)", "the pod gets its node when others have been initialized", "wait"},
	{"the scheduler's ... filter refuses the pod on the nodes that were tried ...", "a plugin of the profile refuses the pod in some pools; the others follow with reasons of their own", "what the reasons say"},
	{"its nodes cost up to ... (annotation " + objects.AnnotationMaxDollarsPerHour + ")", "a budget (docs/guard.md)", "raise it, or wait until nodes end"},
	{"none of N instance types has capacity for it: ... requested, ... at most", "no type that the pool allows is large enough, after DaemonSets and the kubelet's share", "allow larger types, or request less"},
	{"no capacity of storage class ... has been published for its node yet", "the driver has not written a CSIStorageCapacity for the node", "the driver's controller; docs/early-binding.md"},
	{"the host port that the pod requests is taken by a DaemonSet's pod", "on each new node of the pool", "change one of the two"},
	{"EC2NodeClass ...: another controller reports that it is not ready (...)", "", "that controller's condition on the class"},
	{"binding it to its node has failed ... times within ...", "a Permit, Reserve or PreBind plugin refuses the pod each time, or the API server its binding", "the scheduler's events on the pod"},
	{"its node was ready for ..., and the scheduler has not bound it there", "a plugin of the profile keeps the pod from being bound", "the scheduler's log"},
	{"ProvisioningRequest \"...\", which the pod names, has no capacity yet", "the pod waits for the capacity that Kueue asked for", "the conditions of the ProvisioningRequest (docs/objects.md)"},
	{"it is a static pool of N nodes, and none are launched for pods", "the pool has replicas", "scale it, or add another pool"},
	{"persistentvolumeclaim \"...\" is not bound and has no storage class", "", "name a storage class in it"},
	{"waiting for the ephemeral volume controller to create claim \"...\"", "", "wait"},
	{"devices of class ... are reserved for pods planned for the node", "the free devices belong to other pods, which will be bound there in a moment", "wait"},
	{"storage of class ... is reserved for pods planned for the node", "the free storage belongs to other pods, which will be bound there in a moment", "wait"},
	{"the pod asks for ..., which the requirement of the pool excludes: ...", "the pool allows none of the label's values that the pod accepts", "correct the pod or the pool's requirement"},
	{"the pod asks for pool ...", "node selector or node affinity names another pool", "see what keeps that pool from launching a node, or correct the pod"},
	{"the pod asks for ..., a label that the pool's nodes don't have", "node selector or node affinity names a label of your own", "add it to spec.template.metadata.labels or to the requirements of the pool, or correct the pod"},
	{"pod affinity over ... can't be met where nodes can be launched", "the pods that it must be with are where the pool has no nodes", "a pool in that zone"},
	{"attachments of ... are reserved for pods planned for the node", "the free attachments belong to other pods, which will be bound there in a moment", "wait"},
	{"persistentvolume \"...\" can only be used on the node it is on", "it is a local volume: a new node doesn't help", "free capacity on that node, or give up the volume"},
	{"not all of the N pods that its group needs can be placed", "the pod's PodGroup starts as a whole, or not at all", "what the rest of the message says; or a smaller minMember of the PodGroup"},
	{"anti-affinity of other pods over ... excludes every domain", "in each zone there is a pod that must not be with it", "change the anti-affinity of those pods"},
	{"host port ... is reserved for a pod planned for the node", "another pod that will be bound there in a moment takes the port", "wait"},
	{"... over ... needs a label that none of the pool's possible nodes has", "the constraint's topologyKey names a label that no node of the pool which the pod's selector allows would have", "add the label to spec.template.metadata.labels or to the requirements of the pool, correct topologyKey, or ScheduleAnyway"},
	{"topology spread over ... with maxSkew N allows no domain", "each new node that both the pool and the pod's selector allow would be in a domain (a value of that label) that has too many of these pods already", "a pool with nodes in the other domains, a selector that allows them, a higher maxSkew, or ScheduleAnyway"},
	{"no pod on a node with the label ... matches the pod affinity", "no pod matches all of the pod's required terms (spec.affinity.podAffinity), or those that do have no node yet, or one without that label", "correct topologyKey, labelSelector or namespaces of the terms, create the pods that are meant, or prefer such nodes only (preferredDuringSchedulingIgnoredDuringExecution)"},
	{"no node with the pods it has affinity to has capacity", "affinity over kubernetes.io/hostname: only the nodes of those pods are possible, and they are full", "free capacity there, or a wider topologyKey"},
	{"storageclass \"...\" of persistentvolumeclaim \"...\" not found", "", "create the storage class"},
	{"the planned node did not pass the scheduler's filters", "the cluster has changed since the plan, or a filter depends on something that plans don't know", "nothing: the pod is planned again"},
	{"the CSI driver ... has not registered on its node yet", "the driver's DaemonSet pod on the node isn't ready", "look at that pod"},
	{"spec.template.spec.nodeClassRef.name: there is no ...", "the pool can't be used", "kubectl describe nodepool, kubectl describe ec2nodeclass"},
	{"what the pod's resourceclaims ask for isn't known", "a pod that stands for others of its class was forgotten meanwhile", "nothing: its next scheduling cycle asks again"},
	{"capacity is reserved for the pod on another node", "the pod has a node of its own; it isn't allowed here", "nothing"},
	{"node ... is not launched yet, and is tried again: ...", "a launch call has failed and is repeated", "nothing. If it lasts, see what else makes many calls in the account"},
	{"preemption is making room for the pod on node ...", "pods of lower priority are ending there", "wait"},
	{"minValues: only N of M values of ... are possible", "the pool demands more variety than there is", "lower minValues, or set minValuesPolicy: BestEffort"},
	{"none of N node pools is for pods of scheduler ...", "the profile selects other pools", "nodePoolSelector in ProvisionArgs (docs/configuration.md)"},
	{"its constraints on other pods can't all be met", "each one could be met, but not together", "give up one of them"},
	{"preemption is tried before a node is launched", "the pod's priority is system-cluster-critical or above, or the profile has preemptFirst", "if preemption doesn't help, a node is launched"},
	{"its requirements exclude all N instance types that its node class's images and zones allow", "the pool's requirements contradict each other, or name types that the region doesn't have or that the class has no image for, such as types with GPUs", "correct the pool, or the class's images"},
	{"the region has no instance type that its node class's images and zones allow", "the class's subnets are in zones without instance types, or none can run its images", "correct the class; or --catalog"},
	{"pod anti-affinity over ... excludes every domain", "in each zone there is a pod that it must not be with", "a narrower topologyKey, or fewer replicas"},
	{"persistentvolumeclaim \"...\" waits for its volume", "", "its StorageClass binds at once (volumeBindingMode: Immediate), and the provisioner has not made the volume yet"},
	{"persistentvolumeclaim \"...\" has lost its volume", "", "create or repair the PersistentVolumeClaim"},
	{"the other pods of its plan are placed first", "its node is there, and the pods before it are being bound", "wait"},
	{"anti-affinity to a pod planned for the node", "the two must not share a node, and the other one will be there", "nothing"},
	{"not planned for again before ... have passed: ...", "the last plan for it has failed", "the reason at the end, if it comes again and again"},
	{"... is reserved for pods planned for the node", "the free capacity belongs to other pods, which will be bound there in a moment", "wait"},
	{"persistentvolumeclaim \"...\" is being deleted", "", "create or repair the PersistentVolumeClaim"},
	{"persistentvolume \"...\" of claim \"...\" not found", "the claim is bound to a volume that is gone", "create the claim anew"},
	{"no profile selects it (nodePoolSelector)", "the profile selects other pools", "nodePoolSelector in ProvisionArgs (docs/configuration.md)"},
	{"its node has not become usable within ...", "gateDeadline is over. The pod is left to the scheduler; what it waited for follows", "if that was a driver on a node that is initialized, see docs/guard.md"},
	{beingPlanned, "the burst that the pod belongs to is still coming in, or is being planned: seconds", "metric dovetail_plan_duration_seconds; the log"},
	{"refused by a filter of the scheduler", "a plugin of the profile refuses the pod there", "the plugin's reason"},
	{"the node has not registered in time", "a node is later than nodes usually are (lateAfter), so it gets no further pods; the pod gets another one", "see docs/node-unknown.md"},
	{"the capacity reservation is used up", "the pool allows only reserved capacity", "another capacity type in the pool"},
	{"persistentvolumeclaim \"...\" not found", "", "create or repair the PersistentVolumeClaim"},
	{"none of N instance types left has ...", "the pod's selector (architecture, zone, type and so on) and the pool's requirements have nothing in common", "widen one of them"},
	{"its node has not registered yet: ...", "the instance boots, and this pod can't be bound before its kubelet has registered, for the reason that follows", "wait (docs/node-unknown.md); or " + objects.AnnotationBind + ": early on the pod, if losing it does no harm"},
	{"NodeClaims have not been read yet", "", "wait: Dovetail has just started"},
	{"annotation ... is ..., it can only be ...", "", "correct the annotation of the pod"},
	{"the pod's group ... does not exist", "its label names a PodGroup that isn't there", "create it, or remove the label"},
	{"EC2NodeClass ... is being deleted", "the pool can't be used", "kubectl describe nodepool, kubectl describe ec2nodeclass"},
	{"its node still has the taint ...", "a startup taint, or another taint that the pod doesn't tolerate", "does the agent run that removes it?"},
	{"none of N instance types has ...", "the pod's selector (architecture, zone, type and so on) and the pool's requirements have nothing in common", "widen one of them"},
	{"its node is being launched", "EC2 has been asked, and the Node isn't there yet", "events LaunchDelayed on the pod, kubectl describe nodeclaim"},
	{"NodePool ... is being deleted", "the pool can't be used", "kubectl describe nodepool, kubectl describe ec2nodeclass"},
	{"launches are paused since ...", "instances have failed one after the other", "mend the cause at the end of the message; then: dovetail retry (docs/guard.md)"},
	{"NodeClaims can't be read: ...", "", "usually RBAC: apply the roles of this version"},
	{"the node is being removed", "it is cordoned, and will be drained", "nothing"},
	{"the nodes of all pools, planned ones included, use ... of ... (limits of ProvisionArgs)", "a limit of all pools together (docs/configuration.md)", "raise it, or wait until nodes end"},
	{"over the limit of all pools: they use ... of ... (limits of ProvisionArgs), up to ... more needed", "a limit of all pools together, of which another plan has used more meanwhile", "raise it, or wait until nodes end"},
	{"limit of ... reached: ... left", "spec.limits of the pool", "raise it, or wait until nodes end"},
	{"node ... was not launched: ...", "", "what EC2 says: InsufficientInstanceCapacity passes by itself; UnauthorizedOperation needs a permission (docs/aws.md); VcpuLimitExceeded needs a quota"},
	{"taint ... is not tolerated", "the pool taints its nodes", "a toleration on the pod, or another pool"},
	{"node ... failed to start: ...", "", "what EC2 says: InsufficientInstanceCapacity passes by itself; UnauthorizedOperation needs a permission (docs/aws.md); VcpuLimitExceeded needs a quota"},
	{"there is no node pool", "no NodePool, no Provisioner, none in the profile", "see docs/install.md"},
	{"a new node does not help a DaemonSet's pod", "a DaemonSet makes a pod for each node, and its node has no capacity for it", "free capacity on that node"},
}

// AdviceFor returns the advice for a message; false: none is known. The message may be a part of a longer text.
func AdviceFor(message string) (Advice, bool) {
	for i, p := range patterns() {
		if p.MatchString(message) {
			if advices[i].Says == unknownLabel {
				return forLabel(advices[i], message), true
			}
			return advices[i], true
		}
	}
	return Advice{}, false
}

// adviceFor returns the advices for the parts of a message that names several pools or reasons, each once.
func adviceFor(messages ...string) (out []Advice) {
	for _, message := range messages {
		for part := range strings.SplitSeq(message, "; ") {
			if a, ok := AdviceFor(part); ok && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		if a, ok := AdviceFor(message); ok && !slices.Contains(out, a) { // one whose text has a semicolon in it
			out = append(out, a)
		}
	}
	return out
}

var number = regexp.MustCompile(`\b[NM]\b`)

// patterns returns the expressions of all advices.
var patterns = sync.OnceValue(func() (out []*regexp.Regexp) {
	for _, a := range advices {
		var parts []string
		for _, part := range strings.Split(a.Says, "...") {
			parts = append(parts, number.ReplaceAllString(regexp.QuoteMeta(part), `\d+`))
		}
		out = append(out, regexp.MustCompile("(?s)"+strings.Join(parts, ".*?")))
	}
	return out
})
