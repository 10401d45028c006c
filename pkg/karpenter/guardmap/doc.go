// Package guardmap keeps records of the spending guard in a ConfigMap: those about pools and classes that have no object of their own and, for a
// Dovetail with a name, all. Package store keeps the others as annotations.
package guardmap
