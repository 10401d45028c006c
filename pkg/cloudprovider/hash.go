package cloudprovider

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// HashVersion is written beside each of our hashes. Only hashes of the same version can be compared: nodes that Karpenter created
// carry Karpenter's hashes, and until pkg/karpenter stamps them again, there is nothing to compare with. Change it whenever the same spec
// would get another hash.
const HashVersion = "dovetail-v1"

// Hash returns the hash of a value's JSON, without unset fields and with lists as sets. The values are API types, which were decoded
// from JSON and can be encoded as such.
func Hash(v any) string {
	raw, _ := json.Marshal(v)
	var plain any
	_ = json.Unmarshal(raw, &plain)
	raw, _ = json.Marshal(canonical(plain))
	sum := sha256.Sum256(raw)
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 10)
}

// canonical drops empty lists, maps and nulls, and sorts lists by the JSON of their elements.
func canonical(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for key, value := range t {
			if c := canonical(value); c == nil {
				delete(t, key)
			} else {
				t[key] = c
			}
		}
		if len(t) == 0 {
			return nil
		}
	case []any:
		type element struct {
			text  string
			value any
		}
		var elements []element
		for _, value := range t {
			if c := canonical(value); c != nil {
				text, _ := json.Marshal(c)
				elements = append(elements, element{string(text), c})
			}
		}
		slices.SortFunc(elements, func(a, b element) int { return strings.Compare(a.text, b.text) })
		if len(elements) == 0 {
			return nil
		}
		out := make([]any, len(elements))
		for i := range elements {
			out[i] = elements[i].value
		}
		return out
	}
	return v
}
