package ec2

import (
	"maps"
	"regexp"
	"slices"
)

// This file checks launch data as EC2 does when something is launched from it. A launch template may contain any of these faults: EC2
// doesn't check it earlier.

// volumeKind holds EC2's limits of a volume type.
type volumeKind struct {
	minGiB, maxGiB   int64
	minIOPS, maxIOPS int // 0: must not be given
	needsIOPS        bool
	maxThroughput    int // MiB/s; 0: must not be given
}

const minThroughput = 125

var volumeKinds = map[string]volumeKind{
	"standard": {minGiB: 1, maxGiB: 1024},
	"gp2":      {minGiB: 1, maxGiB: 16384},
	"gp3":      {minGiB: 1, maxGiB: 65536, minIOPS: 3000, maxIOPS: 80000, maxThroughput: 2000},
	"io1":      {minGiB: 4, maxGiB: 16384, minIOPS: 100, maxIOPS: 64000, needsIOPS: true},
	"io2":      {minGiB: 4, maxGiB: 65536, minIOPS: 100, maxIOPS: 256000, needsIOPS: true},
	"st1":      {minGiB: 125, maxGiB: 16384},
	"sc1":      {minGiB: 125, maxGiB: 16384},
}

// checkVolumes refuses volumes that can't be created. A volume for a device of the image is created from the image's snapshot.
func (d *launchData) checkVolumes(im *image) *apiError {
	for _, v := range d.volumes {
		name := v.Type
		if name == "" {
			name = "gp2" // EC2's default
		}
		kind, ok := volumeKinds[name]
		snapshot := snapshotGiB(im, v.Device)
		switch {
		case !ok:
			return invalidValue("volumeType", v.Type, "It is no volume type.")
		case v.GiB == 0 && v.Snapshot == "" && snapshot == 0:
			return missing("size or snapshotId")
		case v.GiB != 0 && v.Snapshot == "" && v.GiB < snapshot:
			return failf("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot 'snap-0%07d', expect size>= %dGB", v.GiB, snapshot, snapshot)
		case v.GiB != 0 && (v.GiB < kind.minGiB || v.GiB > kind.maxGiB):
			return failf("InvalidParameterValue", "Volume of %dGiB is invalid for volume type %s; must be between %d and %d.", v.GiB, name, kind.minGiB, kind.maxGiB)
		case v.IOPS != 0 && kind.maxIOPS == 0:
			return failf("InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", name)
		case v.IOPS == 0 && kind.needsIOPS:
			return missing("iops")
		case v.IOPS != 0 && (v.IOPS < kind.minIOPS || v.IOPS > kind.maxIOPS):
			return failf("InvalidParameterValue", "Iops of %d is invalid for volume type %s; must be between %d and %d.", v.IOPS, name, kind.minIOPS, kind.maxIOPS)
		case v.Throughput != 0 && kind.maxThroughput == 0:
			return failf("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", name)
		case v.Throughput != 0 && (v.Throughput < minThroughput || v.Throughput > kind.maxThroughput):
			return failf("InvalidParameterValue", "Throughput of %d is invalid for volume type %s; must be between %d and %d.", v.Throughput, name, minThroughput, kind.maxThroughput)
		}
	}
	return nil
}

func snapshotGiB(im *image, device string) int64 {
	for _, own := range im.devices {
		if own.name == device {
			return own.gib
		}
	}
	return 0
}

// checkOptions refuses invalid option values, and interfaces together with options that exclude them.
func (d *launchData) checkOptions() *apiError {
	for _, o := range []struct {
		name, value string
		may         []string
	}{
		{"HttpEndpoint", d.metadata.Endpoint, []string{"enabled", "disabled"}},
		{"HttpProtocolIpv6", d.metadata.IPv6, []string{"enabled", "disabled"}},
		{"HttpTokens", d.metadata.Tokens, []string{"optional", "required"}},
		{"InstanceMetadataTags", d.metadata.Tags, []string{"enabled", "disabled"}},
		{"MarketType", d.market, []string{spot, capacityBlock, interruptible}},
	} {
		if o.value != "" && !slices.Contains(o.may, o.value) {
			return invalidValue(o.name, o.value, "")
		}
	}
	switch hops := d.metadata.HopLimit; {
	case hops < 0 || hops > 64:
		return failf("InvalidParameterValue", "The HttpPutResponseHopLimit must be an integer between 1 and 64, not %d.", hops)
	case len(d.interfaces) > 0 && d.instanceLevel:
		return failf("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request")
	}
	return nil
}

// shownKey matches the tag keys that are allowed when instances show their tags in their metadata.
var shownKey = regexp.MustCompile(`^[0-9a-zA-Z_+=,.@:-]{1,255}$`)

// checkShownTags refuses tags that the instance metadata can't show. more are the tags of the request.
func (d *launchData) checkShownTags(more map[string]string) *apiError {
	if d.metadata.Tags != "enabled" {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(merged(d.tags["instance"], more))) {
		if !shownKey.MatchString(key) {
			return failf("InvalidParameterValue", "'%s' is not a valid tag key. Tag keys must match pattern (%s), and must not be a reserved name ('.', '..', '_index')", key, shownKey)
		}
	}
	return nil
}
