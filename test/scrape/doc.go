// Package scrape reads a scheduler's /metrics: its memory, its CPU time, its requests and pods, the lengths of its queues, and histograms.
package scrape
