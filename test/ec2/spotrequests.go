package ec2

import (
	"slices"
	"strings"
)

type spotRequestItem struct {
	ID       string    `xml:"spotInstanceRequestId"`
	Instance string    `xml:"instanceId"`
	State    string    `xml:"state"`
	Type     string    `xml:"type"`
	Code     string    `xml:"status>code"`
	Message  string    `xml:"status>message"`
	Updated  string    `xml:"status>updateTime"`
	Zone     string    `xml:"launchedAvailabilityZone"`
	Created  string    `xml:"createTime"`
	Tags     []tagItem `xml:"tagSet>item"`
}

func spotRequestID(in *instance) string { return "sir-" + in.ID[len(in.ID)-8:] }

// describeSpotInstanceRequests shows the request of each spot instance. Here it has the instance from the start.
func (w *world) describeSpotInstanceRequests(r *Request) (any, error) {
	ids := r.params.strs("SpotInstanceRequestId")
	var items []spotRequestItem
	for _, in := range w.instances {
		if in.CapacityType != spot || in.forgotten || in.visible.After(w.now) {
			continue
		}
		item := spotRequestItem{
			ID: spotRequestID(in), Instance: in.ID, State: "active", Type: "one-time", Code: "fulfilled", Message: "Your spot request is fulfilled.",
			Updated: timestamp(in.Launched), Zone: in.Zone, Created: timestamp(in.Launched), Tags: tagItems(in.SpotRequestTags),
		}
		switch {
		case in.live() && in.marked:
			item.Code, item.Message = "marked-for-termination", "Your instance is marked for termination."
		case in.live():
		case strings.HasPrefix(in.Reason, "Server.SpotInstanceTermination"):
			item.State, item.Code, item.Message = "closed", "instance-terminated-no-capacity", "Your instance was terminated as there is no capacity."
		default:
			item.State, item.Code, item.Message = "closed", "instance-terminated-by-user", "Your instance was terminated by you."
		}
		ok, err := r.matches(tagMatcher(in.SpotRequestTags, map[string]string{
			"instance-id": in.ID, "spot-instance-request-id": item.ID, "state": item.State, "status-code": item.Code, "launched-availability-zone": in.Zone,
		}))
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, item.ID)) {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b spotRequestItem) int { return strings.Compare(a.ID, b.ID) })
	items, next, err := page(r, items, 5, 1000, 1000, func(i spotRequestItem) string { return i.ID })
	return struct {
		Requests []spotRequestItem `xml:"spotInstanceRequestSet>item"`
		Next     string            `xml:"nextToken,omitempty"`
	}{items, next}, err
}
