// Package iam evaluates an IAM policy as AWS does: is an action on a resource allowed, given what the request and the resource are like?
//
// It knows identity-based policies: statements with actions, resources and conditions, explicit denials, and the condition operators
// that Parse accepts. A policy that uses anything else is an error, so that nothing is evaluated wrongly in silence. Which actions and
// resources a request is about is the business of package ec2.
package iam
