// Package permission asks EC2 with dry runs whether the program's role may launch what the node pools would launch from a node class, before
// anything is launched from it.
//
// It asks about one class at a time, in the background and rarely: dry runs count against the same request limits as launches. A class is
// usable until EC2 has said no; any other error is no answer. Whether the class itself is right is not asked here: packages validation and aws
// say that.
package permission
