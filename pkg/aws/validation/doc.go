// Package validation says what is wrong with a node class as it stands, without asking AWS, and which of its fields have no effect.
//
// Whether what the class refers to exists is looked up by package aws; whether the program may launch from it is checked by package
// permission.
package validation
