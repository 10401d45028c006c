// Package catalog knows what EC2 sells in a region: instance types with their hardware, the zones that offer them, and prices. A Cache
// keeps this up to date from EC2 and the price list; a File holds it for programs that ask nobody (docs/catalog.md).
//
// A price source is a function in fetch.go and a loop of the Cache that calls it.
//
// The package knows nothing of node classes: how large a node of a type is, and which offerings a class can use, others compute.
package catalog
