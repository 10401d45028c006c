package ec2

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// limit is a token bucket: size tokens, refilled with rate tokens per second.
type limit struct {
	size, rate float64
}

// Limits of EC2 per account, region and action (EC2 API throttling, developer guide).
var (
	nonMutating = limit{100, 20}
	unfiltered  = limit{50, 10}
	mutating    = limit{50, 5}
	special     = map[string]limit{
		"CreateLaunchTemplateVersion": {100, 5},
		"CreateTags":                  {100, 10},
		"RunInstances":                {5, 2},
		"TerminateInstances":          {100, 5},
	}
	// perInstance charges a call for each instance in it, in addition to the call itself.
	perInstance = map[string]limit{
		"RunInstances":       {1000, 2},
		"TerminateInstances": {1000, 20},
	}
	// costly calls have a smaller bucket if they are neither filtered nor paged.
	costly = map[string]bool{
		"DescribeInstances": true, "DescribeInstanceStatus": true, "DescribeNetworkInterfaces": true, "DescribeSecurityGroups": true,
		"DescribeSnapshots": true, "DescribeSpotInstanceRequests": true, "DescribeVolumes": true,
	}
	pricingLimit = limit{10, 5}
)

type buckets struct {
	mu     *sync.Mutex
	levels map[string]*level
}

type level struct {
	tokens float64
	at     time.Time
}

func newBuckets() buckets { return buckets{mu: &sync.Mutex{}, levels: map[string]*level{}} }

// take takes n tokens from the bucket, or none.
func (b buckets) take(name string, l limit, n float64, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.levels[name]
	if have == nil {
		have = &level{tokens: l.size, at: now}
		b.levels[name] = have
	}
	have.tokens = min(l.size, have.tokens+l.rate*now.Sub(have.at).Seconds())
	have.at = now
	if have.tokens < n {
		return false
	}
	have.tokens -= n
	return true
}

// throttle charges the call if Config.Throttle is set.
func (s *Sim) throttle(r *Request) error {
	if !s.cfg.Throttle {
		return nil
	}
	switch r.Service {
	case "ec2":
		name, l := r.Action, limitOf(r)
		if l == unfiltered {
			name += " (unfiltered)"
		}
		ok := s.buckets.take(name, l, 1, r.Time)
		if per, charged := perInstance[r.Action]; ok && charged {
			ok = s.buckets.take(r.Action+" (instances)", per, float64(instancesIn(r)), r.Time)
		}
		if !ok {
			return &apiError{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable,
				Message: "Request limit exceeded. Account " + s.cfg.Account + " has been throttled on ec2:" + r.Action + " because it exceeded its request rate limit."}
		}
	case "pricing":
		if !s.buckets.take("pricing", pricingLimit, 1, r.Time) {
			return failf("ThrottlingException", "Rate exceeded")
		}
	}
	return nil
}

func limitOf(r *Request) limit {
	if l, ok := special[r.Action]; ok {
		return l
	}
	if !strings.HasPrefix(r.Action, "Describe") {
		return mutating
	}
	if costly[r.Action] && !r.params.has("Filter") && !r.params.has("MaxResults") && !r.params.has("InstanceId") && !r.params.has("GroupId") {
		return unfiltered
	}
	return nonMutating
}

func instancesIn(r *Request) int {
	if r.Action == "TerminateInstances" {
		return len(r.params.strs("InstanceId"))
	}
	n, err := r.params.number("MaxCount", 1)
	if err != nil {
		return 1
	}
	return n
}
