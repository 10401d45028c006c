// Package antiaffinity finds, among many classes, those whose pods must not share a node with those of a given class. To look at few of them, it
// indexes classes by the labels that they have and by the labels that their terms ask for.
//
// It knows required anti-affinity by host alone (capacity.Apart). Other topologies and preferences are the planner's.
package antiaffinity
