// Package provision turns a pod that fits on no node into demand. Its PostFilter submits the pod and returns at once; pkg/launch decides
// what is done for it. The package knows no cloud and no Karpenter type, and calculates nothing.
package provision
