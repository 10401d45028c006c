// Package objects answers questions about pods and nodes that several packages have and that have only one answer: which controller
// owns a pod, whether it has ended, whether a node is Ready. It knows the API's types, but no plans, claims or clouds; whether a node
// is managed is capacity.Managed.
package objects
