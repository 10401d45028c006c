// Package zonalshift keeps the zones that traffic is shifted away from, as Application Recovery Controller says for the cluster.
//
// It only knows the zones. That nothing is launched there is the business of package aws.
package zonalshift
