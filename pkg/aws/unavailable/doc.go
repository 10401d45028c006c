// Package unavailable remembers for which offerings EC2 had no capacity lately, which ones a node class avoids, and which ones EC2 recommends to leave. It
// keeps that in memory only: after a restart every offering is tried again.
package unavailable
