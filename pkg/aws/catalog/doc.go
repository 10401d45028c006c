// Package catalog knows what EC2 sells in a region: instance types with their hardware, the zones that offer them, and prices. A Cache
// keeps this up to date from EC2 and the price list; a File holds it for programs that make no calls to AWS (docs/catalog.md).
//
// A price source is a priceSource value in a file of its own (ondemand.go, spot.go) and an entry in priceSources.
//
// The package knows nothing of node classes: how large a node of a type is, and which offerings a class can use, others compute.
package catalog
