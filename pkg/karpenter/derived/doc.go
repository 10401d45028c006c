// Package derived holds the pools and node classes that have no API object of their own: it derives them from Provisioners with their
// AWSNodeTemplates, and from profiles' arguments, and keeps what would be written to their status.
//
// It watches nothing and writes nothing: pkg/karpenter/store tells it what has changed, and shows its objects among the watched ones.
package derived
