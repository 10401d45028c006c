package ec2

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

const (
	onDemand = "on-demand"
	spot     = "spot"
	// Market options of instances that run in reserved capacity.
	capacityBlock = "capacity-block"
	interruptible = "interruptible-capacity-reservation"
)

// price returns $/h, and false if the zone doesn't offer this.
func (w *world) price(t *catalog.Type, zone, capacityType string) (float64, bool) {
	if !t.OfferedIn(zone) || !t.Sells(capacityType) {
		return 0, false
	}
	if p, ok := w.capacity.prices[pool{t.Name, zone, capacityType}]; ok {
		return p, true
	}
	if capacityType == spot {
		return t.Spot(zone)
	}
	return t.OnDemand()
}

type spotPriceItem struct {
	Type    string `xml:"instanceType"`
	Product string `xml:"productDescription"`
	Price   string `xml:"spotPrice"`
	Time    string `xml:"timestamp"`
	Zone    string `xml:"availabilityZone"`
	ZoneID  string `xml:"availabilityZoneId"`
}

func (w *world) describeSpotPriceHistory(r *Request) (any, error) {
	const product = "Linux/UNIX"
	types, products, zone := r.params.strs("InstanceType"), r.params.strs("ProductDescription"), r.params.str("AvailabilityZone")
	if _, err := r.params.time("StartTime"); err != nil {
		return nil, err
	}
	var items []spotPriceItem
	for _, t := range w.cfg.Catalog.Types {
		for _, s := range w.network.subnets {
			p, sold := w.price(t, s.zone, spot)
			if !sold || len(types) > 0 && !slices.Contains(types, t.Name) || zone != "" && zone != s.zone ||
				len(products) > 0 && !slices.ContainsFunc(products, func(p string) bool { return strings.HasPrefix(p, product) }) {
				continue
			}
			item := spotPriceItem{t.Name, product, strconv.FormatFloat(p, 'f', 6, 64), timestamp(w.now), s.zone, s.zoneID}
			ok, err := r.matches(tagMatcher(nil, map[string]string{
				"instance-type": t.Name, "availability-zone": s.zone, "product-description": product, "spot-price": item.Price, "timestamp": item.Time,
			}))
			if err != nil {
				return nil, err
			}
			if ok {
				items = append(items, item)
			}
		}
	}
	key := func(i spotPriceItem) string { return i.Type + "/" + i.Zone }
	slices.SortFunc(items, func(a, b spotPriceItem) int { return strings.Compare(key(a), key(b)) })
	items, next, err := page(r, items, 1, math.MaxInt32, 1000, key) // EC2 documents no limit, and Karpenter asks for 2,000
	return struct {
		Prices []spotPriceItem `xml:"spotPriceHistorySet>item"`
		Next   string          `xml:"nextToken,omitempty"`
	}{items, next}, err
}

// getProducts returns the price list: each entry is a JSON document in a string.
func (w *world) getProducts(r *Request) (any, error) {
	var in struct {
		ServiceCode, NextToken string
		MaxResults             *int
		Filters                []struct{ Field, Value, Type string }
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	for _, partition := range []string{"us-gov-", "us-iso", "eu-iso", "eusc-"} {
		if strings.HasPrefix(w.cfg.Region, partition) {
			return nil, failf("UnrecognizedClientException", "The security token included in the request is invalid.") // no endpoint takes credentials of the partition
		}
	}
	n := 100
	if in.MaxResults != nil {
		n = *in.MaxResults
	}
	if n < 1 || n > 100 {
		return nil, failf("InvalidParameterException", "MaxResults must be between 1 and 100")
	}
	start := 0
	if in.NextToken != "" {
		raw, err := base64.RawURLEncoding.DecodeString(in.NextToken)
		if start, err = strconv.Atoi(string(raw)); err != nil {
			return nil, failf("InvalidNextTokenException", "The token is invalid")
		}
	}
	var out struct {
		FormatVersion string
		PriceList     []string
		NextToken     string `json:",omitempty"`
	}
	out.FormatVersion = "aws_v1"
	at := 0
	for _, p := range w.products() {
		if in.ServiceCode != "AmazonEC2" || slices.ContainsFunc(in.Filters, func(f struct{ Field, Value, Type string }) bool {
			return !strings.EqualFold(p.attributes[f.Field], f.Value)
		}) {
			continue
		}
		if at++; at <= start {
			continue
		}
		if len(out.PriceList) == n {
			out.NextToken = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(start + n)))
			break
		}
		doc, err := p.document()
		if err != nil {
			return nil, err
		}
		out.PriceList = append(out.PriceList, doc)
	}
	return out, nil
}

// product is an entry of the price list.
type product struct {
	attributes map[string]string
	price      float64
}

func (w *world) products() []product {
	var out []product
	for _, t := range w.cfg.Catalog.Types {
		if len(t.Zones) == 0 {
			continue
		}
		p, ok := w.price(t, t.Zones[0], onDemand)
		if !ok {
			continue
		}
		family, tenancies := "Compute Instance", []string{"Shared"}
		if t.BareMetal {
			family, tenancies = "Compute Instance (bare metal)", []string{"Shared", "Dedicated"}
		}
		for _, tenancy := range tenancies {
			out = append(out, product{map[string]string{
				"serviceCode": "AmazonEC2", "regionCode": w.cfg.Region, "instanceType": t.Name, "operatingSystem": "Linux", "preInstalledSw": "NA",
				"capacitystatus": "Used", "marketoption": "OnDemand", "tenancy": tenancy, "productFamily": family, "licenseModel": "No License required",
				"locationType": "AWS Region", "vcpu": strconv.Itoa(t.VCPUs), "memory": fmt.Sprintf("%g GiB", float64(t.MemoryMiB)/1024),
			}, p})
		}
	}
	return out
}

func (p *product) document() (string, error) {
	sku := strings.ToUpper(strings.NewReplacer(".", "", "-", "").Replace(p.attributes["instanceType"] + p.attributes["tenancy"]))
	attributes := map[string]string{}
	for k, v := range p.attributes {
		if k != "productFamily" {
			attributes[k] = v
		}
	}
	term := map[string]any{
		"sku": sku, "offerTermCode": "JRTCKXETXF",
		"priceDimensions": map[string]any{sku + ".JRTCKXETXF.6YS6EN2CT7": map[string]any{
			"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": map[string]string{"USD": strconv.FormatFloat(p.price, 'f', 10, 64)},
		}},
	}
	doc, err := json.Marshal(map[string]any{
		"serviceCode": "AmazonEC2", "product": map[string]any{"sku": sku, "productFamily": p.attributes["productFamily"], "attributes": attributes},
		"terms": map[string]any{"OnDemand": map[string]any{sku + ".JRTCKXETXF": term}},
	})
	return string(doc), err
}
