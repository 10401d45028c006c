// Package catalog is a table of EC2 instance types with their hardware, zones and prices.
//
// It is what the EC2 simulator offers and what offline tools may price with. The table comes either from Builtin, a
// compact one written for Dovetail, or from a JSON file (docs/catalog.md has the schema). It is not what the product
// runs on: that asks the EC2 API.
package catalog
