package launch

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// namer makes the names of claims and plans, and the tokens of launch batches. Safe for concurrent use.
type namer struct {
	clusterName string

	mu    sync.Mutex
	names *rand.Rand
}

// randomName returns a name that begins with prefix. Underscores become dashes: a pool (from a file) may have a name that an object can't
// have.
func (n *namer) randomName(prefix string) string {
	prefix = strings.ReplaceAll(prefix, "_", "-")
	b := make([]byte, 8)
	n.mu.Lock()
	for i := range b {
		b[i] = nameAlphabet[n.names.Intn(len(nameAlphabet))]
	}
	n.mu.Unlock()
	const maxLabel = 63
	if len(prefix) > maxLabel-1-len(b) {
		prefix = strings.TrimRight(prefix[:maxLabel-1-len(b)], "-.")
	}
	return prefix + "-" + string(b)
}

// token returns the client token of a launch batch. It depends only on the cluster, the claims and the number of the attempt, so that a
// restarted process computes the same token.
func (n *namer) token(claims []*capacity.Claim, attempt int) string {
	uids := make([]string, 0, len(claims))
	for _, c := range claims {
		uids = append(uids, c.UID)
	}
	slices.Sort(uids)
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s\x00%s\x00%d", n.clusterName, strings.Join(uids, ","), attempt)))
	return "dt-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))[:48]
}
