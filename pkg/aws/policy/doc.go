// Package policy writes the IAM policy that the program runs under, from the one list of calls that it makes (aws.Clients):
// each call is allowed on what it is meant for, and nothing else is allowed.
//
// It is not here to talk to AWS, and the scheduler does not need it: it is for whoever sets up an account, and for the test
// that keeps the shipped policy in step.
package policy
