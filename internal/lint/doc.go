// Package lint keeps the few house rules that no public tool knows, as a test with a reason per rule.
//
// It is not for taste: what isn't worth a red build isn't a rule here.
package lint
