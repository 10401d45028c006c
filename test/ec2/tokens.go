package ec2

import "crypto/sha256"

// tokenUse is the first use of a client token.
type tokenUse struct {
	fingerprint [sha256.Size]byte
	answer      any
	ids         []string
}

// once makes an action idempotent by client token: the same token with the same parameters returns the first answer, with other
// parameters an error. Failed calls don't use up their token.
func (w *world) once(r *Request, do func() (any, error)) (any, error) {
	if r.Token == "" {
		return do()
	}
	if len(r.Token) > 64 {
		return nil, failf("InvalidParameterValue", "Client token exceeds 64 characters")
	}
	key := r.Action + "/" + r.Token
	if use := w.tokens[key]; use != nil {
		if use.fingerprint != r.fingerprint() {
			return nil, failf("IdempotentParameterMismatch", "The client token '%s' was used with different parameters", r.Token)
		}
		if w.allEnded(use.ids) {
			return nil, failf("IdempotentInstanceTerminated", "The instances launched with client token '%s' have been terminated", r.Token)
		}
		r.results, r.repeated = use.ids, true
		return use.answer, nil
	}
	answer, err := do()
	if err == nil {
		w.tokens[key] = &tokenUse{r.fingerprint(), answer, r.results}
	}
	return answer, err
}

// allEnded reports whether there are instances among the IDs and all of them are terminated.
func (w *world) allEnded(ids []string) bool {
	instances := 0
	for _, id := range ids {
		in := w.byID[id]
		if in == nil {
			continue
		}
		if instances++; in.State != shuttingDown && in.State != terminated {
			return false
		}
	}
	return instances > 0
}
