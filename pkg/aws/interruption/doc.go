// Package interruption reads the queue on which EventBridge announces that EC2 will interrupt, stop or maintain instances. It asks
// EC2 whether a message is true, as far as EC2 can tell, and decides nothing else: the function given to OnInterruption handles what was
// announced, and a message is deleted when it has been handled.
package interruption
