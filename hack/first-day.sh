#!/usr/bin/env bash
# Runs the rehearsal of docs/first-day.md against the cluster of the kubeconfig and the account of the AWS configuration, or with --simulate against a
# simulated one. It needs Go only. Flags: hack/first-day.sh --help
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go run ./test/firstday/cmd/firstday "$@"
