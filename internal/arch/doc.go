// Package arch keeps the rooms apart: who may import whom is a test here, with a reason per line.
//
// It is not for style; that is what verify's other tools look at.
package arch
