// Package spending guards what instances cost: it watches what becomes of every instance that is bought, keeps breakers for what fails, and
// is asked before any purchase. The rules are those of package guard (pkg/capacity/guard), which knows only values; this package feeds it from
// informers, holds its lock, and writes its records.
//
// It launches and ends nothing.
package spending
