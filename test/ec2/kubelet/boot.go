package kubelet

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"
)

// delays are one node's delays drawn from Boot, each counted from the end of the one before.
type delays struct {
	register, ready, plugins time.Duration
	never                    bool
}

// draw depends only on the seed and the instance ID.
func (b *Boot) draw(seed uint64, id string) delays {
	h := fnv.New64a()
	h.Write([]byte(id))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	const z95 = 1.6448536 // the standard normal distribution's 95 % quantile
	sigma := math.Log(float64(b.P95)/float64(b.Median)) / z95
	d := delays{register: time.Duration(float64(b.Median) * math.Exp(sigma*r.NormFloat64()))}
	d.ready = between(r, b.ReadyMin, b.ReadyMax)
	d.plugins = between(r, b.PluginsMin, b.PluginsMax)
	d.never = r.Float64() < b.Never
	return d
}

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Float64()*float64(high-low))
}
