package kubelet

import (
	"hash/fnv"
	"math/rand/v2"
)

// Overhead returns the share, 0 to 1, of an instance type's memory that firmware and the kernel of an image keep, so that the kubelet doesn't see
// it. EC2 publishes no such number. Nil stands for some 100 MiB and 2.5 %.
type Overhead func(instanceType, image string) float64

// DrawnOverhead draws a share between least and most for each type and image. It is always the same for the same seed.
func DrawnOverhead(seed uint64, least, most float64) Overhead {
	return func(instanceType, image string) float64 {
		h := fnv.New64a()
		h.Write([]byte(instanceType + " " + image))
		return least + (most-least)*rand.New(rand.NewPCG(seed, h.Sum64())).Float64()
	}
}
