// Package ec2 is an EC2 simulator: a real HTTP server that unmodified AWS SDKs and the AWS CLI can talk to.
//
// It answers the calls that Dovetail and Karpenter make to EC2, SSM, IAM, STS, Pricing, EKS and SQS, and it behaves like them: prices and
// allocation strategies, capacity that runs out per pool, partly filled fleets, client tokens, eventual consistency, request token
// buckets, instance states from pending to terminated, addresses and names, spot interruptions. Tests can inject faults, and a journal
// records everything that happened, for tests to check. Running instances are passed to Machines, which can boot software on them
// (package kubelet).
//
// It is a fake with behaviour, for tests and for the demonstration on one host. It has one region, one account, one VPC and one
// cluster, checks no signatures, and must not contain logic of the product. With Config.Policy, requests need permissions as they do at AWS
// (package iam).
//
//	sim, err := ec2.New(ec2.Config{Seed: 1})
//	defer sim.Close()
//	client := awsec2.NewFromConfig(sim.AWSConfig())
package ec2
