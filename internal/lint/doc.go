// Package lint checks the few rules of this project that no public tool knows, as a test with a reason per rule.
//
// It does not check taste: what isn't worth a failing build isn't a rule here.
package lint
