package ec2

import (
	"encoding/json"
	"net/http"
	"time"
)

// serveAdmin serves over HTTP what the Go methods offer, for other processes:
//
//	GET  /_sim/journal       {"calls": [...], "changes": [...], "bill": {...}}
//	GET  /_sim/instances     all instances ever; ?live=true for pending and running ones
//	POST /_sim/capacity      {"type", "zone", "capacityType", "n", "code"}: SetCapacity and SetCapacityError
//	POST /_sim/fault         {"action", "when": "before"|"after", "times", "code", "message", "status", "delay": "1s", "drop"}
//	POST /_sim/interrupt     {"instance"}: Interrupt
//	POST /_sim/endnew        {"n", "reason"}: EndNew
func (s *Sim) serveAdmin(mux *http.ServeMux) {
	mux.HandleFunc("GET /_sim/journal", func(hw http.ResponseWriter, _ *http.Request) {
		writeJSON(hw, map[string]any{"calls": s.Calls(), "changes": s.Changes(), "bill": s.Bill()})
	})
	mux.HandleFunc("GET /_sim/instances", func(hw http.ResponseWriter, hr *http.Request) {
		if hr.URL.Query().Get("live") == "true" {
			writeJSON(hw, s.Live())
			return
		}
		writeJSON(hw, s.Instances())
	})
	post(mux, "/_sim/capacity", s.postCapacity)
	post(mux, "/_sim/fault", s.postFault)
	post(mux, "/_sim/endnew", func(in struct {
		N      int
		Reason string
	}) error {
		s.EndNew(in.N, in.Reason)
		return nil
	})
	post(mux, "/_sim/interrupt", func(in struct{ Instance string }) error { return s.Interrupt(in.Instance) })
}

type capacityPost struct {
	Type, Zone, CapacityType, Code string
	N                              *int
}

func (s *Sim) postCapacity(in capacityPost) error {
	for _, p := range []*string{&in.Type, &in.Zone, &in.CapacityType} {
		if *p == "" {
			*p = Any
		}
	}
	if in.N != nil {
		s.SetCapacity(in.Type, in.Zone, in.CapacityType, *in.N)
	}
	if in.Code != "" {
		s.SetCapacityError(in.Type, in.Zone, in.CapacityType, in.Code)
	}
	return nil
}

type faultPost struct {
	Action, When, Code, Message, Delay string
	Times, Status                      int
	Drop                               bool
}

func (s *Sim) postFault(in faultPost) error {
	f := Fault{Code: in.Code, Message: in.Message, Status: in.Status, Drop: in.Drop}
	if in.Delay != "" {
		var err error
		if f.Delay, err = time.ParseDuration(in.Delay); err != nil {
			return err
		}
	}
	ask := Times(max(1, in.Times), f)
	if in.When == "after" {
		s.After(in.Action, func(r *Request, _ *Answer) *Fault { return ask(r) })
		return nil
	}
	s.Before(in.Action, ask)
	return nil
}

func post[T any](mux *http.ServeMux, path string, do func(T) error) {
	mux.HandleFunc("POST "+path, func(hw http.ResponseWriter, hr *http.Request) {
		var in T
		dec := json.NewDecoder(hr.Body)
		dec.DisallowUnknownFields()
		err := dec.Decode(&in)
		if err == nil {
			err = do(in)
		}
		if err != nil {
			http.Error(hw, err.Error(), http.StatusBadRequest)
			return
		}
		hw.WriteHeader(http.StatusNoContent)
	})
}

func writeJSON(hw http.ResponseWriter, v any) {
	hw.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(hw)
	enc.SetIndent("", " ")
	enc.Encode(v) // fails only if the client has disconnected
}
