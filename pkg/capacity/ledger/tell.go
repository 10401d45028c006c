package ledger

// tell reports what the pods planned for a node wait for, once the Node exists and each time the reason changes. That the Node didn't
// exist yet was reported when it was planned.
func (l *Ledger) tell(n *node) {
	if !n.cached {
		return
	}
	var changed []*class
	for _, s := range n.slots {
		if err := s.waits(); !s.ready && err != nil && err.Error() != s.told {
			s.told, s.news = err.Error(), true
			changed = append(changed, s.class)
		}
	}
	for _, c := range changed {
		l.tellClass(c)
	}
}

// tellClass reports changed reasons to the pods that would get the slots. Pods of a class are interchangeable; the first waiting pods
// count for the first slots.
func (l *Ledger) tellClass(c *class) {
	i := 0
	for _, s := range c.slots {
		if s.ready || s.pod != nil || s.owner != "" {
			continue
		}
		if i == len(c.waiting) {
			return
		}
		if s.news {
			s.news = false
			l.out.Waits = append(l.out.Waits, Word{c.waiting[i].ref, s.told})
		}
		i++
	}
}
