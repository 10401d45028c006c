// Package day simulates a day of a cluster, minute by minute: autoscalers change the number of pods, pods restart, roll-outs replace them,
// cron jobs come and go, and spot prices move. Arriving pods are scheduled, nodes are launched for those that fit nowhere, empty nodes are
// removed, and consolidation moves pods.
//
// Simplifications, the same for whoever consolidates: a node that is launched for pending pods takes them at once; a pod that is moved is in
// its new place at once, while its old node is paid until the replacement has booted; removed pods are chosen at random.
package day
