// Package load puts pods on a cluster, at a rate and for a time, and records when they were bound.
package load
