// Package interruption reads the queue on which EventBridge announces that EC2 will interrupt, stop or maintain instances. It decides
// nothing: the function given to OnInterruption handles what was announced, and a message is deleted when it has been handled.
package interruption
