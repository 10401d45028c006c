package records

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// Batches are the launch batches that claims record.
type Batches struct {
	byToken map[string]*capacity.LaunchBatch
	byClaim map[string]*capacity.LaunchBatch
}

// BatchesOf returns the launch batches of the claims. A batch's record names all of its claims. So if a crash kept the record from being written on
// one of them, the records on the others still say which batch that claim belongs to.
func BatchesOf(claims []*capacity.Claim) Batches {
	out := Batches{byToken: map[string]*capacity.LaunchBatch{}, byClaim: map[string]*capacity.LaunchBatch{}}
	for _, c := range claims {
		if c.LaunchBatch == nil || c.LaunchBatch.Token == "" {
			continue
		}
		if have := out.byToken[c.LaunchBatch.Token]; have == nil {
			out.byToken[c.LaunchBatch.Token] = c.LaunchBatch
		}
		for _, name := range c.LaunchBatch.Claims {
			if cur := out.byClaim[name]; cur == nil || cur.Attempt < c.LaunchBatch.Attempt {
				out.byClaim[name] = out.byToken[c.LaunchBatch.Token]
			}
		}
	}
	return out
}

// Of returns the latest launch batch that a claim belongs to, or nil.
func (b Batches) Of(claim string) *capacity.LaunchBatch { return b.byClaim[claim] }

// Called returns the launch batch with that token.
func (b Batches) Called(token string) *capacity.LaunchBatch { return b.byToken[token] }
