// Package drift compares an instance with what its node class is resolved to now. It makes no calls: what EC2 has shown of instances is
// handed to Seen.
package drift
