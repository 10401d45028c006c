package workload

import (
	"encoding/json"
	"fmt"
	"io"
)

// Workload is a set of pods, and the pool they may be placed on.
type Workload struct {
	Name    string   `json:"name"`
	Source  string   `json:"source,omitempty"`
	Pods    int      `json:"pods"`
	Pool    Pool     `json:"pool"`
	Daemons []Daemon `json:"daemons"`
	Groups  []Group  `json:"groups"`
}

// Pool states which instance types may be launched, and how.
type Pool struct {
	// Categories are the first letters of families: c, m, r.
	Categories    []string `json:"categories"`
	MinGeneration int      `json:"minGeneration"`
	// Archs are amd64 and arm64, CapacityTypes on-demand and spot.
	Archs         []string `json:"archs"`
	CapacityTypes []string `json:"capacityTypes"`
}

// Daemon runs on every node. CPU is in milli-CPU, Mem in MiB.
type Daemon struct {
	Name string `json:"name"`
	CPU  int64  `json:"cpu"`
	Mem  int64  `json:"mem"`
}

// Group is a number of identical pods of an application. An application may have several groups.
type Group struct {
	App   string `json:"app"`
	Count int    `json:"count"`
	CPU   int64  `json:"cpu"` // milli-CPU
	Mem   int64  `json:"mem"` // MiB
	GPU   int64  `json:"gpu,omitempty"`
	// Arch, CapacityType and Zone are node selectors.
	Arch         string `json:"arch,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	// SpreadZone is the maxSkew of a topology spread over zones.
	SpreadZone   int32 `json:"spreadZone,omitempty"`
	ZoneAffinity bool  `json:"zoneAffinity,omitempty"`
	AntiHost     bool  `json:"antiHost,omitempty"`
	// MaxPerHost is the maxSkew of a topology spread over nodes.
	MaxPerHost int32 `json:"maxPerHost,omitempty"`
}

// Read reads the JSON format.
func Read(r io.Reader) (*Workload, error) {
	var w Workload
	if err := json.NewDecoder(r).Decode(&w); err != nil {
		return nil, fmt.Errorf("decoding workload: %w", err)
	}
	w.Pods = 0
	for i, g := range w.Groups {
		if g.Count < 0 || g.CPU < 0 || g.Mem < 0 || g.GPU < 0 {
			return nil, fmt.Errorf("workload %s: group %d of app %s: count, cpu, mem and gpu must not be negative", w.Name, i, g.App)
		}
		w.Pods += g.Count
	}
	if w.Pods == 0 {
		return nil, fmt.Errorf("workload %s has no pods", w.Name)
	}
	return &w, nil
}

// Write writes the JSON format.
func (w *Workload) Write(to io.Writer) error {
	enc := json.NewEncoder(to)
	enc.SetIndent("", " ")
	return enc.Encode(w)
}
