// Package outside judges from outside whether nodes were ended as they may be: from the writes that all clients of an API server have made, in
// their order, and nothing that the product says of itself.
package outside
