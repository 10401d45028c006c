package check

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// judgeNodes finds nodes that no pod waited for or was bound to, and instances that no plan contains.
func (h *history) judgeNodes(r *Report, e *Evidence) {
	spare := e.Spare
	of := map[string][]string{} // NodeClaims by provider ID
	for _, c := range h.inOrder() {
		r.Claims++
		for id := range c.providerIDs {
			of[id] = append(of[id], c.name)
		}
		if len(c.first) == 0 && spare > 0 {
			spare--
			continue
		}
		if len(c.slots) == 0 && len(c.providerIDs) > 0 {
			r.Beyond = append(r.Beyond, fmt.Sprintf("claim %s was launched for nobody", c.name))
		}
		n := h.nodes[c.node]
		if n == nil {
			continue
		}
		r.Nodes++
		if !h.awaited(c, n) {
			r.Empty = append(r.Empty, fmt.Sprintf("%s of claim %s: no pod planned for it was alive when it appeared", n.name, c.name))
		}
		switch {
		case n.taken > 0:
		case n.deleted != 0: // it was launched for pods that start together or not at all, and another of their nodes failed
			r.GivenBack++
		case h.tooSmall(c, n):
			r.TooSmall++
		default:
			r.Idle = append(r.Idle, fmt.Sprintf("%s of claim %s: no pod ever came; it was for %s", n.name, c.name, h.fate(c)))
		}
	}
	tagged := map[string][]string{}
	for _, in := range e.Instances {
		id := "aws:///" + in.Zone + "/" + in.ID
		switch owners := of[id]; {
		case len(owners) == 0:
			r.Beyond = append(r.Beyond, fmt.Sprintf("instance %s (%s in %s, %s) belongs to no claim; its tags are %v", in.ID, in.Type, in.Zone, in.State, in.Tags))
		case len(owners) > 1:
			r.Odd = append(r.Odd, fmt.Sprintf("instance %s belongs to the claims %s", in.ID, strings.Join(owners, ", ")))
		}
		if c := in.Tags["karpenter.sh/nodeclaim"]; c != "" {
			tagged[c] = append(tagged[c], in.ID)
		}
	}
	for _, c := range h.inOrder() {
		if ids := max(len(c.providerIDs), len(tagged[c.name])); ids > 1 {
			r.Beyond = append(r.Beyond, fmt.Sprintf("claim %s had %d instances: %v %v", c.name, ids, c.providerIDs, tagged[c.name]))
		}
	}
}

// awaited reports whether a pod that the NodeClaim's node was planned for was alive when the node appeared.
func (h *history) awaited(c *claim, n *node) bool {
	for uid := range c.named {
		if p := h.pods[uid]; p != nil && p.alive(n.created) {
			return true
		}
	}
	owners := map[types.UID]bool{}
	for _, s := range c.slots {
		if s.Owner != "" {
			owners[s.Owner] = true
		}
	}
	for _, p := range h.pods {
		if owners[p.owner()] && p.alive(n.created) {
			return true
		}
	}
	return false
}

// fate describes what happened to the pods for which a NodeClaim was created.
func (h *history) fate(c *claim) string {
	var out []string
	for uid := range c.named {
		p := h.pods[uid]
		switch {
		case p == nil:
			out = append(out, "a pod never seen")
		case p.bound == 0:
			out = append(out, p.String()+" (not bound)")
		case h.nodes[p.node] != nil:
			out = append(out, p.String()+" (bound to "+h.nodes[p.node].name+")")
		default:
			out = append(out, p.String())
		}
	}
	for _, s := range c.slots {
		if s.Owner != "" {
			out = append(out, "a pod of owner "+string(s.Owner)+" to come")
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// tooSmall reports whether a node turned out to have less memory than planned, when it registered, and too little for each pod that it was launched for.
func (h *history) tooSmall(c *claim, n *node) bool {
	if n.reported == 0 || n.reported >= n.promised {
		return false
	}
	free := n.reported
	for _, p := range h.pods {
		if p.bound != 0 && h.nodes[p.node] == n && isDaemon(p.last) {
			free -= memory(p.last)
		}
	}
	for uid := range c.named {
		if p := h.pods[uid]; p != nil && memory(p.last) <= free {
			return false
		}
	}
	return len(c.named) > 0
}
