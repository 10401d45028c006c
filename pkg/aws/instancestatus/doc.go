// Package instancestatus asks EC2 each minute which instances fail its status checks, and for which it has scheduled an event. It decides nothing:
// impaired instances can be asked for, and scheduled events are reported as interruptions.
package instancestatus
