// Package ownership says by tags which resources of the account belong to this cluster. What isn't marked is never removed.
package ownership
