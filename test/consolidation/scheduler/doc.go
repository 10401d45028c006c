// Package scheduler lets kube-scheduler place the pods of a simulated cluster: its cache, the filters and scores of the shipped profile, and
// its choice of the nodes that it looks at. It doesn't run: the caller asks it pod by pod, so no time passes and no API server is needed.
package scheduler
