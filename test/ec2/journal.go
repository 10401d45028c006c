package ec2

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// Call is a call that was served.
type Call struct {
	Time    time.Time `json:"time"`
	Service string    `json:"service"`
	Action  string    `json:"action"`
	Token   string    `json:"token,omitempty"`
	// Key is the access key that the call was signed with.
	Key string `json:"key,omitempty"`
	// Params is a summary: "Name=value Name=value".
	Params string `json:"params,omitempty"`
	// DryRun reports that the call asked only whether it would succeed.
	DryRun bool `json:"dryRun,omitempty"`
	// Results are the IDs of the resources that the call created or used.
	Results []string `json:"results,omitempty"`
	// Code is the error code of the answer, empty for success.
	Code string `json:"code,omitempty"`
	// Lost reports that the client got no answer.
	Lost bool `json:"lost,omitempty"`
	// Repeated reports that the answer was that of an earlier call with the same client token.
	Repeated bool `json:"repeated,omitempty"`
}

// Change is an instance's change of state. From is empty for a launch.
type Change struct {
	Time         time.Time `json:"time"`
	Instance     string    `json:"instance"`
	Type         string    `json:"type"`
	Zone         string    `json:"zone"`
	CapacityType string    `json:"capacityType"`
	Price        float64   `json:"price"` // $/h
	From         string    `json:"from,omitempty"`
	To           string    `json:"to"`
	Reason       string    `json:"reason,omitempty"`
}

// journal records everything that happened. It is never truncated.
type journal struct {
	calls   []Call
	changes []Change
}

func (j *journal) call(r *Request, err error, lost bool) {
	c := Call{Time: r.Time, Service: r.Service, Action: r.Action, Token: r.Token, Key: signedBy(r.http), Params: r.summary(), DryRun: r.DryRun(), Results: r.results, Lost: lost, Repeated: r.repeated}
	var e *apiError
	if errors.As(err, &e) {
		c.Code = e.Code
	} else if err != nil {
		c.Code = "InternalError"
	}
	j.calls = append(j.calls, c)
}

func (j *journal) change(now time.Time, in *instance, from, to, reason string) {
	j.changes = append(j.changes, Change{now, in.ID, in.Type, in.Zone, in.CapacityType, in.Price, from, to, reason})
}

// Calls returns all calls so far, or those of the given actions, without dry runs.
func (s *Sim) Calls(actions ...string) []Call { return s.calls(false, actions) }

// DryRuns returns the dry runs so far, of all actions or of the given ones.
func (s *Sim) DryRuns(actions ...string) []Call { return s.calls(true, actions) }

func (s *Sim) calls(dry bool, actions []string) []Call {
	var out []Call
	s.with(func(w *world) {
		for _, c := range w.journal.calls {
			if c.DryRun == dry && (len(actions) == 0 || slices.Contains(actions, c.Action)) {
				out = append(out, c)
			}
		}
	})
	return out
}

// Changes returns all state changes so far.
func (s *Sim) Changes() []Change {
	var out []Change
	s.with(func(w *world) { out = slices.Clone(w.journal.changes) })
	return out
}

// Instances returns all instances that were ever launched, in the order of launch.
func (s *Sim) Instances() []Instance {
	return s.instances(func(*instance) bool { return true })
}

// Live returns the instances that are pending or running.
func (s *Sim) Live() []Instance {
	return s.instances(func(in *instance) bool { return in.live() })
}

func (in *instance) live() bool { return in.State == pending || in.State == running }

func (s *Sim) instances(want func(*instance) bool) []Instance {
	out := []Instance{}
	s.with(func(w *world) {
		for _, in := range w.instances {
			if want(in) {
				out = append(out, in.snapshot())
			}
		}
	})
	return out
}

func (in *instance) snapshot() Instance {
	out := in.Instance
	out.Tags, out.Volumes, out.Interfaces = maps.Clone(in.Tags), slices.Clone(in.Volumes), slices.Clone(in.Interfaces)
	return out
}

// LaunchesByToken returns the IDs of the instances that each client token launched.
func (s *Sim) LaunchesByToken() map[string][]string {
	out := map[string][]string{}
	for _, in := range s.Instances() {
		out[in.ClientToken] = append(out[in.ClientToken], in.ID)
	}
	return out
}

// Doubles finds duplicate launches: it returns the values of the tag that more than one instance had at the same time while pending or
// running, with the IDs of those instances. Use it for a tag that names one owner per instance, such as karpenter.sh/nodeclaim.
func (s *Sim) Doubles(tagKey string) map[string][]string {
	owners := map[string][]Instance{}
	for _, in := range s.Instances() {
		if v := in.Tags[tagKey]; v != "" {
			owners[v] = append(owners[v], in)
		}
	}
	out := map[string][]string{}
	for owner, ins := range owners {
		for i, a := range ins {
			for _, b := range ins[i+1:] {
				if overlap(a, b) {
					out[owner] = append(out[owner], a.ID, b.ID)
				}
			}
		}
		slices.Sort(out[owner])
		if out[owner] = slices.Compact(out[owner]); len(out[owner]) == 0 {
			delete(out, owner)
		}
	}
	return out
}

// overlap reports whether two instances were live at the same time. a was launched before b.
func overlap(a, b Instance) bool {
	return a.Ending.IsZero() || b.Launched.Before(a.Ending)
}

// Bill is the cost of the instances, by the simulator's clock.
type Bill struct {
	// Accrued is the cost so far in $, PerHour the current cost in $/h.
	Accrued float64 `json:"accruedUSD"`
	PerHour float64 `json:"usdPerHour"`
	// Hours are the instance hours billed so far.
	Hours float64 `json:"instanceHours"`
	// Running is the number of running instances at the moment.
	Running int `json:"running"`
}

// Bill returns the account's bill.
func (s *Sim) Bill() Bill {
	var b Bill
	s.with(func(w *world) {
		for _, in := range w.instances {
			if in.Running.IsZero() {
				continue
			}
			until := in.Ending
			if in.State == running {
				until = w.now
				b.PerHour += in.Price
				b.Running++
			}
			hours := until.Sub(in.Running).Hours()
			b.Hours += hours
			b.Accrued += hours * in.Price
		}
	})
	return b
}
