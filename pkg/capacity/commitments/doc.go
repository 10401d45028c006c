// Package commitments finds out which nodes a commitment (capacity.Commitment) covers, from what NodeClaims record and what instance types cost. It
// looks at nothing but values, and remembers nothing about nodes: whoever asks at the same moment gets the same answer
// (docs/design/commitments.md).
package commitments
