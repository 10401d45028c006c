// Package objects answers simple questions about pods and nodes that several packages ask: whose pod it is, whether it has ended, whether
// a node is Ready. It declares the names under dovetail.sh that objects and instances bear (names.go), and what they were called
// before (renamed.go). It knows the API's types and nothing of plans, claims or clouds; which nodes are managed is
// capacity.NodeClassLabel.
package objects
