// Package unavailable remembers for which offerings EC2 had no capacity lately, and which ones it recommends to leave. It keeps that in memory
// only: after a restart every offering is tried again.
package unavailable
