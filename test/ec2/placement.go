package ec2

import (
	"slices"
	"strconv"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// spreadLimit is how many instances of a spread group may run in a zone.
const spreadLimit = 7

// placementGroup keeps its instances close together, apart, or in partitions.
type placementGroup struct {
	id, name, strategy string
	partitions         int
	tags               map[string]string
}

// AddPlacementGroup creates a placement group and returns its ID. strategy is cluster, spread or partition; partitions applies to the
// last one only.
func (s *Sim) AddPlacementGroup(name, strategy string, partitions int) string {
	var id string
	s.with(func(w *world) {
		id = w.id("pg")
		w.placements = append(w.placements, &placementGroup{id: id, name: name, strategy: strategy, partitions: partitions, tags: map[string]string{}})
	})
	return id
}

// DeletePlacementGroup removes a placement group, even if it is in use.
func (s *Sim) DeletePlacementGroup(id string) {
	s.with(func(w *world) {
		w.placements = slices.DeleteFunc(w.placements, func(g *placementGroup) bool { return g.id == id })
	})
}

// placementGroup returns the group that a launch names, or nil if it names none.
func (w *world) placementGroup(p Placement) (*placementGroup, *apiError) {
	if p.Group == "" && p.GroupID == "" {
		return nil, nil
	}
	i := slices.IndexFunc(w.placements, func(g *placementGroup) bool { return g.id == p.GroupID || p.GroupID == "" && g.name == p.Group })
	if i < 0 {
		return nil, failf("InvalidPlacementGroup.Unknown", "The Placement Group '%s%s' is unknown.", p.Group, p.GroupID)
	}
	return w.placements[i], nil
}

// checkPlacement returns an error if a type can't be launched with the placement.
func (w *world) checkPlacement(p Placement, t *catalog.Type) *apiError {
	switch p.Tenancy {
	case "", "default", "dedicated":
	default:
		return invalidValue("tenancy", p.Tenancy, "The simulator has no dedicated hosts.")
	}
	g, err := w.placementGroup(p)
	switch {
	case err != nil:
		return err
	case g == nil && p.Partition != 0, g != nil && g.strategy != "partition" && p.Partition != 0:
		return failf("InvalidParameterCombination", "A partition number can be given for partition placement groups only")
	case g == nil:
		return nil
	case !slices.Contains(t.PlacementStrategies(), g.strategy):
		return failf("InvalidParameterCombination", "%s placement groups are not supported by the '%s' instance type. Specify a supported instance type or change the placement group strategy, and try again.",
			g.strategy, t.Name)
	case p.Partition > g.partitions:
		return invalidValue("partitionNumber", strconv.Itoa(p.Partition), "The group has fewer partitions.")
	}
	return nil
}

// placeable returns how many of n instances the group accepts in the zone, and an error if it accepts fewer. taken are the instances
// that this call has already placed, by zone.
func (w *world) placeable(g *placementGroup, zone string, n int, taken map[string]int) (int, *apiError) {
	if g == nil {
		return n, nil
	}
	inZone, elsewhere := taken[zone], ""
	for z, k := range taken {
		if k > 0 && z != zone {
			elsewhere = z
		}
	}
	for _, in := range w.instances {
		switch {
		case in.Placement.GroupID != g.id || in.State == terminated:
		case in.Zone == zone:
			inZone++
		default:
			elsewhere = in.Zone
		}
	}
	switch {
	case g.strategy == "cluster" && elsewhere != "":
		return 0, failf("InvalidPlacementGroup.InUse", "The placement group '%s' is in use in another availability zone: %s", g.name, elsewhere)
	case g.strategy == "spread" && inZone+n > spreadLimit:
		return max(0, spreadLimit-inZone), failf("UnfulfillableCapacity",
			"You've reached the limit of instances in this spread placement group. A spread placement group can have up to seven instances per Availability Zone.")
	}
	return n, nil
}

// partition returns the partition of a new instance: the requested one, or the one with the fewest instances in its zone.
func (w *world) partition(g *placementGroup, asked int, zone string) int {
	if g.strategy != "partition" {
		return 0
	}
	if asked > 0 {
		return asked
	}
	count := make([]int, g.partitions+1)
	for _, in := range w.instances {
		if in.Placement.GroupID == g.id && in.Zone == zone && in.State != terminated {
			count[in.Placement.Partition]++
		}
	}
	best := 1
	for p := 2; p <= g.partitions; p++ {
		if count[p] < count[best] {
			best = p
		}
	}
	return best
}

type placementGroupItem struct {
	Name       string    `xml:"groupName"`
	ID         string    `xml:"groupId"`
	ARN        string    `xml:"groupArn"`
	Strategy   string    `xml:"strategy"`
	State      string    `xml:"state"`
	Partitions int       `xml:"partitionCount,omitempty"`
	Tags       []tagItem `xml:"tagSet>item"`
}

func (w *world) describePlacementGroups(r *Request) (any, error) {
	ids, names := r.params.strs("GroupId"), r.params.strs("GroupName")
	for _, id := range ids {
		if _, err := w.placementGroup(Placement{GroupID: id}); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if _, err := w.placementGroup(Placement{Group: name}); err != nil {
			return nil, err
		}
	}
	var items []placementGroupItem
	for _, g := range w.placements {
		ok, err := r.matches(tagMatcher(g.tags, map[string]string{
			"group-name": g.name, "group-id": g.id, "strategy": g.strategy, "state": "available", "spread-level": "rack",
		}))
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, g.id)) && (len(names) == 0 || slices.Contains(names, g.name)) {
			items = append(items, placementGroupItem{g.name, g.id, w.arn("ec2", "placement-group/"+g.name), g.strategy, "available", g.partitions, tagItems(g.tags)})
		}
	}
	return struct {
		Groups []placementGroupItem `xml:"placementGroupSet>item"`
	}{items}, nil
}
