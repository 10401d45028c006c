// Package catalog is a table of EC2 instance types with their hardware, zones and prices.
//
// The EC2 simulator offers these types, and offline tools may use their prices. The table comes either from Builtin, a compact one
// written for Dovetail, or from a JSON file (docs/catalog.md has the schema). The product does not use it: it asks the EC2 API.
package catalog
