# make demo     runs the whole system on this computer: pods, their nodes, and the termination of the instances
# make sandbox  starts the same cluster and leaves it running until ctrl-C
# make test     runs all checks: verify, unit tests under the race detector, integration tests
# make verify   checks formatting, vet, staticcheck, errcheck, lint rules and import directions; changes nothing
# make bench    measures what a scheduling cycle costs with our plugins
# make chaos    runs the whole program under virtual time while everything around it breaks; HISTORIES=20, SEED=1
# make scenes   runs the whole program under virtual time in worlds written by hand, a day each: lasting faults, and
#               everyday events that must pause nothing; SCENE=name
# make burst    measures what bursts of pods cost, compared with one plan that knows all pods, and how long they take; BASELINE=another scheduler's
#               binary, PAIRS=1, BURST_PODS=100,300, BURST_RATES=25,100,500, BURST=name; JUDGE=false: no figure fails it
# make soak     keeps 2,000 nodes busy for ten minutes: memory, goroutines, queues, requests per pod; SOAK_NODES, SOAK_MINUTES
# make scale    measures the scheduler with thousands of nodes, on a real API server and on one in memory (40 minutes, 20 GiB): latencies, planning,
#               memory, requests, a leader change, and what grows faster than the cluster; PART=api-server, NODES=1000,5000,
#               MEMORY_NODES=5000,15000, RATE=30, MEMORY_RATE=100, BURST=5000, STEADY=90s, PODS_PER_NODE=10
# make fidelity runs random worlds through the real scheduler and checks them from the API and the EC2 journal; WORLDS=200,
#               or WORLD=7 for one of them, printed step by step; SMALL=1 for those of make test
# make repack   lets our consolidation and an emulation of Karpenter's repack clusters of 500 to 5,000 nodes that have lost pods
# make day      lets both consolidate simulated days: cost, evictions, nodes launched, and nodes that were ended too early
# make scores   lets kube-scheduler place the pods of such days by different scores, to see what they cost; WHOLE=1 in the whole program
# make peer     lets Karpenter itself consolidate a small cluster, as a check of the emulation; SEED=1, BALANCED=1, MOST_ALLOCATED=1
# make neighbour moves a cluster of 50 nodes to Karpenter for AWS itself and back; NEIGHBOUR_HOLD=30m
# make compat   runs the scheduler against control planes of the older Kubernetes versions that it supports
# make rollout  replaces all 500 nodes of ten pools on a real API server, one pool without capacity, judged from outside; POOLS, NODES
# make scalein  empties 200 used nodes there after a scale-in, while the scheduler is killed; NODES
# make image    builds the container image for amd64 and arm64 into bin/image, an OCI layout, and its SBOMs; make push IMAGE=REPOSITORY:TAG
#               pushes it, with REGISTRY_USER=NAME for a password on standard input; make notice writes NOTICE
# make browser  shows the page of dovetail view in a headless Chromium, which it installs with apt-get if there is none: numbers, keyboard,
#               pictures in bin/browser
# make chart    packages the charts into bin/; make manifests renders manifests/ from charts/dovetail
# make release-check  holds version, charts, changelog and .goreleaser.yaml against each other, and builds the tool for Linux, macOS and
#               Windows into bin/release; make release-notes prints the changelog's section
# make tool     builds bin/dovetail: why, top, view, plan, retry, catalog, settings, version
# make build    builds that, bin/dovetail-scheduler and the binaries of the demo
#
# You need Go, make and a C compiler. The first run compiles Kubernetes: with two cores expect ten minutes for
# the demo and three quarters of an hour for the tests, half an hour the next time.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

# The Kubernetes version, linked into binaries that contain Kubernetes code. Without it they take themselves for v0.0.0, and
# the product's refuse to start. A test keeps the version in step with go.mod. Dovetail's own version is in pkg/version.
VERSION := v1.36.4
VERSION_PKG := k8s.io/component-base/version
LDFLAGS := -s -w -X $(VERSION_PKG).gitVersion=$(VERSION) -X $(VERSION_PKG).gitMajor=1 -X $(VERSION_PKG).gitMinor=36

say = @printf '\n== %s\n'

# API servers go on writing after the test that failed, so that the last lines of a long log wouldn't name it.
what-failed = { printf '\n== what failed\n'; grep -a -A 4 -E '^ *--- FAIL|^panic: |^FAIL[[:space:]]' bin/integration.log; exit 1; }

.PHONY: build tool test verify unit integration demo sandbox bench burst chaos scenes soak scale fidelity repack day scores peer neighbour compat rollout scalein dashboards browser chart manifests image push notice release-check release-notes clean

build:
	$(say) 'building into bin/ (the first time this compiles Kubernetes: minutes)'
	go build -ldflags '$(LDFLAGS)' -o bin/dovetail-scheduler ./cmd/scheduler
	go build -ldflags '$(LDFLAGS)' -o bin/dovetail ./cmd/dovetail
	go build -ldflags '$(LDFLAGS)' -o bin/controlplane ./test/cluster/cmd/controlplane
	go build -ldflags '-s -w' -o bin/ec2sim ./test/ec2/cmd/ec2sim
	go build -ldflags '-s -w' -o bin/demo ./test/demo

tool:
	$(say) 'building bin/dovetail (the first time this compiles parts of Kubernetes: minutes)'
	@hack/build.sh -ldflags '$(LDFLAGS)' -o bin/dovetail ./cmd/dovetail
	$(say) 'built bin/dovetail'

test: verify unit integration
	$(say) 'all good'

# This Go builds the linters, in the versions of tools/go.mod. They don't check test/.
LINTER := go tool -modfile=tools/go.mod
LINTED := ./cmd/... ./pkg/... ./plugins/... ./internal/...

# This is where go vet runs, with all it knows: tests below are told not to do so again. They would look at all of Kubernetes for it, once for
# the race detector and once without.
verify:
	$(say) 'verify: formatting'
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt -w these: $$unformatted"; exit 1; fi
	$(say) 'verify: import directions and house rules'
	@go test -vet=off -count=1 ./internal/arch ./internal/lint
	$(say) 'verify: go vet'
	@before=$$(git status --porcelain 2>/dev/null || true); \
	  go vet ./...; \
	  go -C tools/chart vet ./...; \
	  go -C tools/image vet ./...; \
	  printf '\n== verify: staticcheck and errcheck (the first time they look at all of Kubernetes: minutes)\n'; \
	  $(LINTER) staticcheck -tags scenes $(LINTED); \
	  $(LINTER) errcheck -tags scenes -exclude tools/errcheck.txt $(LINTED); \
	  after=$$(git status --porcelain 2>/dev/null || true); \
	  if [ "$$before" != "$$after" ]; then echo "verify changed the tree:"; echo "$$after"; exit 1; fi

# Unit tests need no cluster. They run under the race detector. Packages without tests are left out: compiling kube-apiserver
# alone for the race detector would take minutes.
WITH_TESTS := '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
unit:
	$(say) 'unit tests with the race detector'
	@go test -vet=off -race -timeout 20m $$(go list -f $(WITH_TESTS) ./... | grep -v -E '/(cmd/scheduler|test/(cluster|sandbox|integration|realkubelet|bench))(/|$$)|/test/worlds$$')

# Integration tests start etcd, kube-apiserver, the scheduler and the EC2 simulator on loopback.
integration:
	$(say) 'integration tests: building what they start'
	@go build -ldflags '$(LDFLAGS)' -o bin/controlplane ./test/cluster/cmd/controlplane
	@go build -ldflags '$(LDFLAGS)' -o bin/dovetail-scheduler ./cmd/scheduler
	$(say) 'the charts, and the image of a small program'
	@go -C tools/chart test -vet=off -count=1 ./...
	@go -C tools/image test -vet=off -count=1 ./...
	$(say) 'integration tests'
	@go test -vet=off -p 1 -count=1 -timeout 60m $$(go list -f $(WITH_TESTS) ./cmd/scheduler ./test/... | grep -E '/(cmd/scheduler|test/(cluster|sandbox|integration|realkubelet))(/|$$)|/test/worlds$$') \
	  2>&1 | tee bin/integration.log || $(what-failed)
	$(say) 'the demo, short'
	@go build -ldflags '-s -w' -o bin/demo ./test/demo
	@DEMO_PODS=60 bin/demo

PROGRAMS := for name in test/cluster/cmd/controlplane cmd/scheduler; do \
	  binary=$${name\#\#*/}; [ $$binary != scheduler ] || binary=dovetail-scheduler; \
	  echo "  $$binary"; hack/build.sh -ldflags '$(LDFLAGS)' -o bin/$$binary ./$$name; done; \
	  echo '  demo'; hack/build.sh -ldflags '-s -w' -o bin/demo ./test/demo

demo:
	$(say) 'building the demo (the first time this compiles Kubernetes: ten minutes with two cores)'
	@$(PROGRAMS)
	@exec bin/demo

sandbox:
	$(say) 'building the sandbox (the first time this compiles Kubernetes: ten minutes with two cores)'
	@$(PROGRAMS)
	@echo '  dovetail'; hack/build.sh -ldflags '$(LDFLAGS)' -o bin/dovetail ./cmd/dovetail
	@exec bin/demo -sandbox

bench:
	$(say) 'benchmarks: some minutes, and the quieter the machine the better (docs/performance.md)'
	@go test -bench . -timeout 90m ./test/bench/... | go run ./test/bench/table

burst:
	$(say) 'burst: about ten minutes, and as long again with a baseline (BASELINE, PAIRS, BURST_PODS, BURST_RATES, BURST, JUDGE)'
	@go run ./test/burst $(if $(BASELINE),-baseline $(BASELINE)) $(if $(PAIRS),-pairs $(PAIRS)) $(if $(BURST_PODS),-pods $(BURST_PODS)) \
	  $(if $(BURST_RATES),-rates $(BURST_RATES)) $(if $(BURST),-only $(BURST)) $(if $(JUDGE),-judge=$(JUDGE))

HISTORIES ?= 20
SEED ?= 1
chaos:
	$(say) 'chaos: $(HISTORIES) histories from seed $(SEED)'
	@go test -count=1 -timeout 120m ./cmd/scheduler -run 'TestChaos$$' -v -chaos.histories $(HISTORIES) -chaos.seed $(SEED) -chaos.again 0

SCENE ?= .
scenes:
	$(say) 'scenes: a day each, about twelve minutes of one processor'
	@go test -count=1 -timeout 120m -tags scenes ./cmd/scheduler -run 'TestScene.*$(SCENE)' -v -scenes.whole

soak:
	$(say) 'soak: half an hour as it is (SOAK_NODES, SOAK_MINUTES, SOAK_PODS_PER_SECOND)'
	@go run ./test/soak

# BURST also names a case of make burst; here it is a number of pods.
scale:
	$(say) 'scale: about forty minutes and 20 GiB, with two cores (PART, NODES, MEMORY_NODES, RATE, MEMORY_RATE, BURST, STEADY, PODS_PER_NODE)'
	@go run ./test/scale $(if $(PART),-parts $(PART)) $(if $(NODES),-nodes $(NODES)) $(if $(MEMORY_NODES),-memory-nodes $(MEMORY_NODES)) \
	  $(if $(RATE),-rate $(RATE)) $(if $(MEMORY_RATE),-memory-rate $(MEMORY_RATE)) $(if $(BURST),-burst $(BURST)) $(if $(STEADY),-steady $(STEADY)) \
	  $(if $(PODS_PER_NODE),-pods-per-node $(PODS_PER_NODE))

WORLDS ?= 200
fidelity:
	$(say) 'fidelity: random worlds'
	@go run ./test/worlds/cmd/fidelity -seeds $(WORLDS) $(if $(WORLD),-seed $(WORLD)) $(if $(SMALL),-small)

# Both first hold the emulation to the figures of the study that it was written for.
STUDY := go test -vet=off -count=1 -run Study
repack:
	$(say) 'repack: 12 clusters, about five minutes'
	@$(STUDY) ./test/consolidation/emulation -study.whole
	@go run ./test/consolidation repack

day:
	$(say) 'day: 30 days, about ten minutes'
	@$(STUDY) -tags study ./test/consolidation/day
	@go run ./test/consolidation day

scores:
	$(say) 'scores: two days with 8 ways to score, and two hours with 5,000 nodes: about twenty minutes; WHOLE=1: hours'
ifdef WHOLE
	@go test -count=1 -timeout 24h -tags scenes,scores ./cmd/scheduler -run 'TestScores$$' -v
else
	@go build -o bin/consolidation ./test/consolidation
	@bin/consolidation scores -seed 1
	@bin/consolidation scores -seed 2
	@bin/consolidation scores -empty
	@bin/consolidation scores -large
endif

# Prometheus' engine is built from a module of its own. It evaluates dashboards' queries over scrapes of a cluster in which nodes come and go.
dashboards:
	$(say) 'dashboards: a few minutes, and some more to build Prometheus the first time'
	@rm -rf .tmp/scrapes && mkdir -p .tmp/scrapes
	@DOVETAIL_SCRAPES=$(CURDIR)/.tmp/scrapes go test -vet=off -count=1 ./test/integration -run 'TestMetrics$$'
	@go -C tools/dashboards test -vet=off -count=1 -v . -args -scrapes $(CURDIR)/.tmp/scrapes

# Karpenter is built from its own Go module, with the dependencies that it names.
peer:
	$(say) 'peer: about twelve minutes, and some more to build Karpenter the first time'
	@go build -modfile=tools/peer/go.mod -ldflags '-s -w' -o bin/karpenter sigs.k8s.io/karpenter/kwok
	@go run ./test/peer -seed $(SEED) $(if $(BALANCED),-balanced) $(if $(MOST_ALLOCATED),-most-allocated)

# Karpenter for AWS is built the same way. In the hold it must replace no node.
NEIGHBOUR_HOLD ?= 30m
neighbour:
	$(say) 'neighbour: ten minutes and the hold of $(NEIGHBOUR_HOLD), and some more to build Karpenter the first time'
	@go build -modfile=tools/neighbour/go.mod -ldflags '-s -w' -o bin/karpenter-aws github.com/aws/karpenter-provider-aws/cmd/controller
	@go run ./test/neighbour -hold $(NEIGHBOUR_HOLD)

# Each version's control plane is built with a go.mod of its own. The tests install Dovetail, get nodes, restart it, and put it in kube-scheduler's place.
compat:
	@for version in 1.34 1.35; do \
	  printf '\n== compat: building the control plane of Kubernetes %s (the first time minutes)\n' $$version; \
	  full=$$(go list -m -modfile=tools/compat/$$version/go.mod -f '{{.Version}}' k8s.io/kubernetes); \
	  go build -modfile=tools/compat/$$version/go.mod -o bin/controlplane-$$version \
	    -ldflags "-s -w -X $(VERSION_PKG).gitVersion=$$full -X $(VERSION_PKG).gitMajor=1 -X $(VERSION_PKG).gitMinor=$${version#1.}" ./test/cluster/cmd/controlplane; \
	  printf '\n== compat: Dovetail with %s\n' $$full; \
	  go test -vet=off -count=1 -v ./test/sandbox -run 'TestInstallPage|TestSchedulerRestarts|TestReplacesTheScheduler' -args -control-plane $(CURDIR)/bin/controlplane-$$version \
	    | grep -E '^(---|ok|FAIL|PASS)|_test.go:|API server is'; \
	done

# Nodes of a real API server are replaced and emptied, with simulated instances and kubelets.
rollout:
	$(say) 'rollout: about half an hour, and most of an hour if the capacity that comes back is noticed late (POOLS, NODES of each pool)'
	@go run ./test/rollout $(if $(POOLS),-pools $(POOLS)) $(if $(NODES),-nodes $(NODES))

scalein:
	$(say) 'scalein: an hour at most (NODES)'
	@go run ./test/rollout -scalein $(if $(NODES),-nodes $(NODES))

# The browser is driven from a module of its own.
browser:
	$(say) 'browser: about a minute, and some more where Chromium has to be installed'
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }
	@go build -ldflags '$(LDFLAGS)' -o bin/dovetail ./cmd/dovetail
	@mkdir -p bin/browser
	@go -C tools/browser test -vet=off -count=1 -timeout 40m -v . -args -dovetail $(CURDIR)/bin/dovetail -pictures $(CURDIR)/bin/browser

# Charts are rendered and packaged by helm's own library, in a module of its own.
chart:
	$(say) 'packaging the charts'
	@go -C tools/chart run . package --out $(CURDIR)/bin

manifests:
	$(say) 'rendering manifests/ from charts/dovetail'
	@go -C tools/chart run . manifests

# The image is assembled by Go alone: no Docker, no base image, no registry.
IMAGE_TOOL := go -C tools/image run .
image:
	$(say) 'building the image for amd64 and arm64 (the first time this compiles Kubernetes for both)'
	@$(IMAGE_TOOL) build --out $(CURDIR)/bin --ldflags '$(LDFLAGS)'

push:
	@$(IMAGE_TOOL) push $(if $(REGISTRY_USER),--username $(REGISTRY_USER) --password-stdin) $(CURDIR)/bin $(IMAGE)

notice:
	@$(IMAGE_TOOL) notice

# The configuration of goreleaser is read by goreleaser's own code, in a module of its own.
RELEASE_TOOL := go -C tools/release run .
release-check:
	$(say) 'release: version, charts, changelog and .goreleaser.yaml'
	@go -C tools/release vet .
	@go -C tools/release test -vet=off -count=1 .
	@$(RELEASE_TOOL) check --ldflags '$(LDFLAGS)'
	$(say) 'release: building the tool for all systems (minutes for each, the first time)'
	@$(RELEASE_TOOL) build --out $(CURDIR)/bin/release

release-notes:
	@$(RELEASE_TOOL) notes

clean:
	rm -rf bin .demo .tmp
