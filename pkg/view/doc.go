// Package view serves a page that shows a live cluster: what it costs beside the least that its pods could cost, its nodes with what is bound,
// reserved, kept for DaemonSets and free, how far booting nodes are, pods that wait by reason, and what has happened.
//
// ModelOf makes the page's numbers from one look at the cluster (pkg/explain) and is pure. Feed looks again and again and keeps the latest
// model; Server sends browsers what has changed, by server-sent events. Nothing here writes to the cluster, and nothing of it is in the scheduler.
package view
