// Package placementgroup looks up placement groups and answers what can be launched into one.
package placementgroup
