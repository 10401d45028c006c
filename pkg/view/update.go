package view

import "slices"

// Point is what the cluster cost at one time.
type Point struct {
	At      int64   `json:"at"`
	PerHour float64 `json:"perHour"`
	Bound   float64 `json:"bound"` // 0: not known, or not comparable
}

// mostPoints is how many points the chart has. Of more, every second one is left out.
const mostPoints = 720

// Update is what a browser must change to show a model.
type Update struct {
	// Whole: Nodes, Timeline and History are everything, and what the browser had is void.
	Whole bool `json:"whole"`
	// Now is when it is sent: the browser's clock may be another one.
	Now   int64  `json:"now"`
	Head  Head   `json:"head"`
	Nodes []Node `json:"nodes,omitempty"` // those that are new or have changed
	// Gone names nodes that aren't there any more.
	Gone []string `json:"gone,omitempty"`
	// Timeline is all of it; nil: it is as it was.
	Timeline []Entry `json:"timeline,omitempty"`
	// History is all of it; nil: it is as it was, but for Point.
	History []Point `json:"history,omitempty"`
	Point   *Point  `json:"point,omitempty"`
}

// Diff returns what leads from one model to another; nil: from nothing.
func Diff(from, to *Model) *Update {
	u := &Update{Head: to.Head}
	// An empty list can't be told from none.
	if from == nil || len(from.Timeline) > 0 && len(to.Timeline) == 0 || len(from.History) > 0 && len(to.History) == 0 {
		u.Whole, u.Nodes, u.Timeline, u.History = true, to.Nodes, to.Timeline, to.History
		return u
	}
	before := make(map[string]Node, len(from.Nodes))
	for _, n := range from.Nodes {
		before[n.Name] = n
	}
	for _, n := range to.Nodes {
		if was, ok := before[n.Name]; !ok || was != n {
			u.Nodes = append(u.Nodes, n)
		}
		delete(before, n.Name)
	}
	for _, n := range from.Nodes { // in their order
		if _, gone := before[n.Name]; gone {
			u.Gone = append(u.Gone, n.Name)
		}
	}
	if !slices.Equal(from.Timeline, to.Timeline) {
		u.Timeline = to.Timeline
	}
	switch was, is := len(from.History), len(to.History); {
	case is == was+1 && slices.Equal(from.History, to.History[:was]):
		u.Point = &to.History[is-1]
	case !slices.Equal(from.History, to.History):
		u.History = to.History
	}
	return u
}

// extend returns history with a point added.
func extend(history []Point, p Point) []Point {
	if len(history) >= mostPoints {
		var half []Point
		for i := 0; i < len(history); i += 2 {
			half = append(half, history[i])
		}
		history = half
	}
	return append(slices.Clip(history), p) // models share what is before
}
