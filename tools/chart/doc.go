// Command chart renders and packages the charts of this project with helm's own library, so that nobody needs helm to test them.
//
// It is a module of its own: helm needs newer Kubernetes modules than Dovetail, and Dovetail needs nothing of helm. It imports nothing of Dovetail;
// tests there run it as a process and read what it prints.
package main
