// Package instanceprofile looks up the instance profiles of node classes, creates those of roles, and removes those that are no longer
// needed.
package instanceprofile
