// Package scarcity remembers for which offerings the cloud had no capacity, so that launches ask for them with a single claim first.
package scarcity
