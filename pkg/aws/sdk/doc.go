// Package sdk makes the calls to AWS. sdk.go lists every call that the program may make; package policy generates the IAM policy that
// allows them.
//
// Clients send requests that have deadlines, are repeated where that helps, and stay below the documented limits of their action. AWS's
// errors become questions (IsThrottled), sentinels of package capacity (Wrap) and texts for events and conditions (Summarize).
//
// The package knows nothing of node classes, instance types or launches.
package sdk
