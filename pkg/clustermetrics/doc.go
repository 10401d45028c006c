// Package clustermetrics has the gauges of the cluster's state: what nodes have and what their pods request, the state of pods, what pools use
// and may use, what can be bought at which price, and how many pods and nodes Dovetail waits for. Where Karpenter has such a gauge, it has
// Karpenter's name and labels; the others are called dovetail_....
//
// They are computed when they are scraped, from informers' caches: nothing is kept up to date for them, an object that is gone has no
// series any more, and neither the scheduling loop nor a controller waits for them. Scrapes within Freshness share one computation. Only the
// process that leads has a Source, so other replicas export none of them.
//
// Pods also counts what happens to pods as the informer reports it: how long they take to be bound, and to be Ready.
//
// It decides nothing and changes nothing.
package clustermetrics
