// Package provision is the door through which a pod that fits nowhere becomes demand. Its PostFilter takes the pod down
// and returns at once; what comes of it is decided in pkg/launch. It knows no cloud, no Karpenter type and no arithmetic.
package provision
