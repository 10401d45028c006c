package ec2

import (
	"slices"
	"strconv"
	"strings"
)

type subnetItem struct {
	ID        string    `xml:"subnetId"`
	ARN       string    `xml:"subnetArn"`
	State     string    `xml:"state"`
	VPC       string    `xml:"vpcId"`
	Owner     string    `xml:"ownerId"`
	CIDR      string    `xml:"cidrBlock"`
	Free      int       `xml:"availableIpAddressCount"`
	Zone      string    `xml:"availabilityZone"`
	ZoneID    string    `xml:"availabilityZoneId"`
	Default   bool      `xml:"defaultForAz"`
	MapPublic bool      `xml:"mapPublicIpOnLaunch"`
	Tags      []tagItem `xml:"tagSet>item"`
	DNS       struct {
		HostnameType string `xml:"hostnameType"`
	} `xml:"privateDnsNameOptionsOnLaunch"`
}

func (w *world) describeSubnets(r *Request) (any, error) {
	ids := r.params.strs("SubnetId")
	for _, id := range ids {
		if w.network.subnet(id) == nil {
			return nil, failf("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	var items []subnetItem
	for _, s := range w.network.subnets {
		ok, err := r.matches(tagMatcher(s.tags, map[string]string{
			"subnet-id": s.id, "vpc-id": w.network.vpc, "availability-zone": s.zone, "availabilityZone": s.zone, "availability-zone-id": s.zoneID, "state": "available",
			"cidr-block": s.cidr.String(), "owner-id": w.cfg.Account, "default-for-az": "false", "available-ip-address-count": strconv.Itoa(s.free()),
		}))
		if err != nil {
			return nil, err
		}
		if !ok || len(ids) > 0 && !slices.Contains(ids, s.id) {
			continue
		}
		item := subnetItem{
			ID: s.id, ARN: w.arn("ec2", "subnet/"+s.id), State: "available", VPC: w.network.vpc, Owner: w.cfg.Account, CIDR: s.cidr.String(), Free: s.free(),
			Zone: s.zone, ZoneID: s.zoneID, Tags: tagItems(s.tags),
		}
		item.DNS.HostnameType = w.hostnameType()
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b subnetItem) int { return strings.Compare(a.ID, b.ID) })
	items, next, err := page(r, items, 5, 1000, 0, func(s subnetItem) string { return s.ID })
	return struct {
		Subnets []subnetItem `xml:"subnetSet>item"`
		Next    string       `xml:"nextToken,omitempty"`
	}{items, next}, err
}

type groupItem struct {
	ID          string    `xml:"groupId"`
	ARN         string    `xml:"securityGroupArn"`
	Name        string    `xml:"groupName"`
	Description string    `xml:"groupDescription"`
	Owner       string    `xml:"ownerId"`
	VPC         string    `xml:"vpcId"`
	Tags        []tagItem `xml:"tagSet>item"`
}

func (w *world) describeSecurityGroups(r *Request) (any, error) {
	ids, names := r.params.strs("GroupId"), r.params.strs("GroupName")
	for _, id := range ids {
		if w.network.group(id) == nil {
			return nil, failf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	var items []groupItem
	for _, g := range w.network.groups {
		ok, err := r.matches(tagMatcher(g.tags, map[string]string{
			"group-id": g.id, "group-name": g.name, "vpc-id": w.network.vpc, "owner-id": w.cfg.Account, "description": g.description,
		}))
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, g.id)) && (len(names) == 0 || slices.Contains(names, g.name)) {
			items = append(items, groupItem{g.id, w.arn("ec2", "security-group/"+g.id), g.name, g.description, w.cfg.Account, w.network.vpc, tagItems(g.tags)})
		}
	}
	slices.SortFunc(items, func(a, b groupItem) int { return strings.Compare(a.ID, b.ID) })
	items, next, err := page(r, items, 5, 1000, 0, func(g groupItem) string { return g.ID })
	return struct {
		Groups []groupItem `xml:"securityGroupInfo>item"`
		Next   string      `xml:"nextToken,omitempty"`
	}{items, next}, err
}

type zoneItem struct {
	Name   string `xml:"zoneName"`
	ID     string `xml:"zoneId"`
	Region string `xml:"regionName"`
	State  string `xml:"zoneState"`
	Type   string `xml:"zoneType"`
	OptIn  string `xml:"optInStatus"`
	Group  string `xml:"groupName"`
}

func (w *world) describeAvailabilityZones(r *Request) (any, error) {
	names, ids := r.params.strs("ZoneName"), r.params.strs("ZoneId")
	var items []zoneItem
	for _, s := range w.network.subnets {
		ok, err := r.matches(tagMatcher(nil, map[string]string{
			"zone-name": s.zone, "zone-id": s.zoneID, "region-name": w.cfg.Region, "state": "available", "zone-type": "availability-zone",
			"opt-in-status": "opt-in-not-required", "group-name": w.cfg.Region,
		}))
		if err != nil {
			return nil, err
		}
		if ok && (len(names) == 0 || slices.Contains(names, s.zone)) && (len(ids) == 0 || slices.Contains(ids, s.zoneID)) {
			items = append(items, zoneItem{s.zone, s.zoneID, w.cfg.Region, "available", "availability-zone", "opt-in-not-required", w.cfg.Region})
		}
	}
	return struct {
		Zones []zoneItem `xml:"availabilityZoneInfo>item"`
	}{items}, nil
}

func (w *world) arn(service, resource string) string {
	return "arn:aws:" + service + ":" + w.cfg.Region + ":" + w.cfg.Account + ":" + resource
}
