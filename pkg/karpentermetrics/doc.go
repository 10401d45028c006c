// Package karpentermetrics has the counters, histograms and summaries that Karpenter has, too, under Karpenter's names and with its labels, so
// that dashboards and alerts written for Karpenter go on working. Each has a function that says what has happened; the parts of the program
// call it where it happens.
//
// It has no gauge of the cluster's state: package clustermetrics computes those when they are scraped. It imports no part that counts here, because
// all of them import it. What only Dovetail has is called dovetail_... and is in the metrics.go of the package that knows the number.
package karpentermetrics
