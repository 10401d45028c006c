// Package fakecloud is a cloud in memory: instances of one type that boot at once, in one zone. Its node class is Karpenter's
// TestNodeClass. It shows what the program needs of a cloud, and runs the program without AWS.
//
// It never fails and runs out of nothing; test/ec2 is the cloud that does.
package fakecloud
