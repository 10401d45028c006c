#!/usr/bin/env bash
# hack/build.sh ARGUMENTS: go build, which says every ten seconds how many packages of how many are compiled. The first build compiles Kubernetes,
# some 2,000 packages, and would be silent for minutes. The arguments are those of go build; the last one is the package.
set -euo pipefail

package="${*: -1}"
# Packages of the standard library are compiled, too, the first time.
total=$(go list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$package" 2>/dev/null | grep -c . || true)

progress() {
  local done=0 said=$SECONDS line
  while IFS= read -r line; do
    if [[ $line == *[[:space:]:]* || $line == '#'* ]]; then
      printf '%s\n' "$line" >&2 # an error, or a download
      continue
    fi
    done=$((done + 1))
    if ((SECONDS - said >= 10)); then
      said=$SECONDS
      printf '  %d of %d packages: %s\n' "$done" "$((total > done ? total : done))" "$line"
    fi
  done
}

go build -v "$@" 2> >(progress) &
build=$!
status=0
wait "$build" || status=$?
wait # for the last lines
exit "$status"
