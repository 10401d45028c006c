// Package bootstrap knows how an instance becomes a node: the image families, the user data that each of them starts with, what of the
// cluster a node needs to join it (ClusterReader), and how kubelets name their nodes.
//
// A family is a file, such as bottlerocket.go, and a line in the table of families in family.go. The package launches nothing, and it
// finds no images: it knows only where a family's images are published.
package bootstrap
