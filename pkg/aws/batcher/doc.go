// Package batcher turns calls for one key each into calls for many. EC2 limits how many requests an account may send, whereas one request may name
// many instances.
package batcher
