// Package batcher turns calls for one key each into calls for many, because EC2 limits how many requests an account makes, but not (within a
// page) how many instances one request names.
package batcher
