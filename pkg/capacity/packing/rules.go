package packing

// rulebook holds the rules by item, as filling a candidate needs them.
type rulebook struct {
	rules []Rule
	// byItem holds the rules that concern an item as owner or member.
	byItem [][]ruleOf
}

// ruleOf is what an item is in a rule (Rule): a member, an owner, or both.
type ruleOf struct {
	rule   int // index in rules
	member bool
	limit  int // the owner's Limit; -1: the item is not an owner
}

func newRulebook(rules []Rule, items int) *rulebook {
	b := &rulebook{rules: rules, byItem: make([][]ruleOf, items)}
	for r := range rules {
		at := map[int]int{}
		entry := func(item int) *ruleOf {
			i, ok := at[item]
			if !ok {
				i = len(b.byItem[item])
				at[item] = i
				b.byItem[item] = append(b.byItem[item], ruleOf{rule: r, limit: -1})
			}
			return &b.byItem[item][i]
		}
		for _, m := range rules[r].Members {
			entry(m).member = true
		}
		for _, o := range rules[r].Owners {
			if e := entry(o.Item); e.limit < 0 || o.Limit < e.limit {
				e.limit = o.Limit
			}
		}
	}
	return b
}

// tally is the state of the rules (Rule) for one candidate, by rule.
type tally struct {
	members []int // how many pieces of the rule's members the candidate holds
	// limit is the lowest limit of the rule's owners of which the candidate holds pieces; -1: it holds none.
	limit []int
}

func (b *rulebook) newTally() *tally {
	t := &tally{members: make([]int, len(b.rules)), limit: make([]int, len(b.rules))}
	t.reset()
	return t
}

func (t *tally) reset() {
	for r := range t.members {
		t.members[r], t.limit[r] = 0, -1
	}
}

// room returns how many more pieces of an item, at most n, the rules allow.
func (b *rulebook) room(t *tally, item, n int) int {
	for _, e := range b.byItem[item] {
		limit := t.limit[e.rule]
		if e.limit >= 0 && (limit < 0 || e.limit < limit) {
			limit = e.limit
		}
		if limit < 0 {
			continue
		}
		left := limit - t.members[e.rule]
		switch {
		case e.member:
			n = min(n, max(left, 0))
		case left < 0:
			return 0
		}
	}
	return n
}

func (b *rulebook) add(t *tally, item, n int) {
	for _, e := range b.byItem[item] {
		if e.member {
			t.members[e.rule] += n
		}
		if e.limit >= 0 && (t.limit[e.rule] < 0 || e.limit < t.limit[e.rule]) {
			t.limit[e.rule] = e.limit
		}
	}
}
