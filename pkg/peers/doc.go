// Package peers keeps several Dovetails of one cluster apart (docs/design/several.md). Each says on the Lease of its leader election what it
// manages, and doesn't act while another one manages some of that, too.
//
// It decides nothing about nodes: pkg/karpenter/store keeps another Dovetail's objects out of its caches, and pkg/aws its instances.
package peers
