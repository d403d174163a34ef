# slipway: `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# What is tested with the race detector: everything but the tests that start
# the whole as processes, what links the Temporal server, and the schema, which
# starts no goroutines.
RACE := ./activities/... ./workflows/... ./worker/... ./api/... ./cmd/slipway/... \
	$(addprefix ./cmd/slipway-dev/,ports supervise postgres kube bao issuer panel up)
# The tests of the whole mostly wait, so two packages run at a time: the longest
# first, with small ones beside it. Those that break things, or have seconds for
# something, and those with a browser, have the machine for themselves.
WHOLE := ./tests/e2e ./tests/chart ./tests/source ./tests/leasejobs ./tests/kubestand ./tests/kvstand ./tests ./tests/secrets
FAULTS := ./tests/coordination ./tests/panel ./tests/faults ./tests/rolling ./tests/restore ./tests/leasesoak ./tests/bench
TOOLS := bin/tools
# The server for secrets is OpenBao where there is one.
KVSERVER := $(if $(or $(BAO_BIN),$(shell command -v bao)),,bin/kvserver)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 16

##@ Use

.PHONY: dev
dev: deps build $(if $(KUBE),deps-kube bin/kube-apiserver) $(if $(BAO),deps-bao $(KVSERVER)) ## everything on this machine, with the example (KUBE=1 adds Kubernetes and the lease API, BAO=1 a server for secrets, RESET=1 wipes first, DETACH=1 returns when ready)
	@bin/slipway-dev up $(if $(KUBE),--kube) $(if $(BAO),--bao) $(if $(RESET),--reset) $(if $(DETACH),--detach)

.PHONY: dev-stop
dev-stop: ## end what `make dev` runs
	@bin/slipway-dev down

.PHONY: deps
deps: ## install the system packages that are missing
	@deploy/dev/install.sh run

.PHONY: build
build: ## build bin/slipway and bin/slipway-dev
	@test -x bin/slipway-dev || echo "Building slipway-dev, which has the Temporal server in it: some minutes the first time."
	go build -o bin/slipway ./cmd/slipway
	go build -o bin/slipway-dev ./cmd/slipway-dev

.PHONY: deps-kube
deps-kube:
	@deploy/dev/install.sh kube

.PHONY: deps-bao
deps-bao:
	@deploy/dev/install.sh bao

.PHONY: kube-apiserver
kube-apiserver: bin/kube-apiserver ## build bin/kube-apiserver, the Kubernetes API server of the tests and of KUBE=1
bin/kube-apiserver: tests/kubeapi/go.mod tests/kubeapi/go.sum tests/kubeapi/main.go
	@echo "Building kube-apiserver: some minutes the first time."
	go build -C tests/kubeapi -o $(CURDIR)/$@ .
	@touch $@

.PHONY: kvserver
kvserver: bin/kvserver ## build bin/kvserver, the server for secrets of the tests and of BAO=1 where OpenBao is not installed
bin/kvserver: tests/kvserver/go.mod tests/kvserver/go.sum tests/kvserver/main.go
	@echo "Building kvserver: some minutes the first time."
	go build -C tests/kvserver -o $(CURDIR)/$@ .
	@touch $@

.PHONY: helm
helm: bin/helm ## build bin/helm, which the tests of the chart run
bin/helm: tests/helm/go.mod tests/helm/go.sum
	@echo "Building helm: some minutes the first time."
	go build -C tests/helm -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm
	@touch $@

bin/containerlint: tests/containerlint/go.mod tests/containerlint/go.sum tests/containerlint/main.go
	@echo "Building containerlint: a minute or two the first time."
	go build -C tests/containerlint -o $(CURDIR)/$@ .
	@touch $@

##@ Develop

.PHONY: check
check: tools generated bin/containerlint ## format, vet, staticcheck, determinism of workflows, tidy modules, generated files, container file
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "not formatted: $$files"; exit 1; }
	go vet ./...
	$(TOOLS)/staticcheck ./...
	$(TOOLS)/workflowcheck ./workflows
	go mod tidy -diff
	go test ./tests

.PHONY: generated
generated: ## check that generated files are up to date
	go test -run TestSchemaHasNotDrifted ./activities/store

.PHONY: generate
generate: ## write the generated files
	UPDATE_SCHEMA=1 go test -count=1 -run TestSchemaHasNotDrifted ./activities/store

.PHONY: tools
tools: $(TOOLS)/staticcheck
$(TOOLS)/staticcheck: .ci/tools/go.mod .ci/tools/go.sum
	cd .ci/tools && GOBIN=$(CURDIR)/$(TOOLS) go install honnef.co/go/tools/cmd/staticcheck go.temporal.io/sdk/contrib/tools/workflowcheck
	touch $@
$(TOOLS)/cyclonedx-gomod: .ci/tools/go.mod .ci/tools/go.sum
	@# An SBOM has the checksums of the program that wrote it.
	cd .ci/tools && GOBIN=$(CURDIR)/$(TOOLS) GOFLAGS= CGO_ENABLED=0 go install -trimpath github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	touch $@

.PHONY: test
test: deps-test build bin/kube-apiserver bin/helm bin/containerlint $(KVSERVER) ## every test
	@echo "Unit tests, most with the race detector:"
	go test ./schema/...
	GORACE=atexit_sleep_ms=0 go test -race $(RACE)
	@echo "The whole, as processes:"
	go test -count=1 -p 2 -timeout 20m $(WHOLE)
	go test -count=1 -p 1 -timeout 20m $(FAULTS)

.PHONY: deps-test
deps-test:
	@deploy/dev/install.sh run bao test kube

.PHONY: soak
soak: deps-test build bin/kube-apiserver $(KVSERVER) ## the long versions of the tests
	SOAK=$(or $(SOAK),10m) go test -count=1 -p 1 -timeout 3h -v ./tests/faults
	SOAK=$(or $(SOAK),5m) go test -count=1 -p 1 -timeout 3h -v ./tests/leasesoak
	SOAK=$(or $(SOAK),2m) go test -count=1 -timeout 3h -v -run TestSBOMStorm ./activities/store

.PHONY: bench
bench: deps-test build bin/kube-apiserver ## ratios, each measured side by side in one run
	BENCH=1 go test -count=1 -p 1 -timeout 30m -v ./tests/bench

.PHONY: histories
histories: build ## record new histories for the replay test (keep the old ones that a release ran with)
	go run ./tests/histories -replace

##@ Release

.PHONY: release
release: $(TOOLS)/cyclonedx-gomod ## dist/: slipway of the commit that is checked out, each built twice and compared, with its SBOM and checksums
	deploy/release/release.sh dist $(TOOLS)/cyclonedx-gomod

.PHONY: clean
clean: ## remove what was built (not the state of `make dev`)
	rm -rf bin dist
