// Package arch tests which package of this module may import which, with a reason per rule.
//
// It does not check style; other tools of make verify do.
package arch
