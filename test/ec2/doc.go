// Package ec2 is an EC2 simulator: a real HTTP server that unmodified AWS SDKs and the AWS CLI can talk to.
//
// It answers what Dovetail asks of EC2, and of SSM, IAM, STS, Pricing, EKS and SQS beside it, and it behaves: prices and
// allocation strategies, capacity that runs out per pool, partial fleets, client tokens, eventual consistency, request
// token buckets, lives from pending to terminated, addresses and names, spot interruptions. Faults are injected on demand
// and everything that happened is in a journal to assert against. Instances that run are handed to Machines, so that
// something boots on them (package kubelet).
//
// It is a fake that behaves, for tests and for the demonstration on one machine. It knows one region, one account, one
// VPC and one cluster, checks no signatures and no permissions, and is no place for logic of the product.
//
//	sim, err := ec2.New(ec2.Config{Seed: 1})
//	defer sim.Close()
//	client := awsec2.NewFromConfig(sim.AWSConfig())
package ec2
