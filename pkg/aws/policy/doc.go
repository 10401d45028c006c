// Package policy generates the IAM policy that the program runs under, from the one list of calls that it makes (sdk.Clients): each
// call is allowed on the resources it is meant for, and nothing else is allowed.
//
// The package does not talk to AWS, and the scheduler does not need it: it is for administrators who set up an account, and for the
// test that keeps the shipped policy in step.
package policy
