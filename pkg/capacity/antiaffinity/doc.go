// Package antiaffinity finds the classes whose pods must not share a node with those of a given class, among many. It looks at classes that have
// a label which a term asks for, and at terms that ask for a label which the class has, and not at all classes.
//
// It knows required anti-affinity by host alone (capacity.Apart). Other topologies and preferences are the planner's.
package antiaffinity
