// Package batcher turns calls for one key each into calls for many: EC2 limits how many requests it accepts, not how many instances one
// of them is about.
package batcher
