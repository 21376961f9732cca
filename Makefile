# Everything is built with one set of flags, so that the build cache holds between targets. Race detection needs cgo,
# everything else does without.
SHELL := /bin/bash -o pipefail
export GOTOOLCHAIN := local
GO := go
NOCGO := CGO_ENABLED=0 $(GO)
BUILD := $(NOCGO) build -buildvcs=false
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
STAMP := -ldflags "-X sandbox-provisioner/internal/version.version=$(VERSION) -X sandbox-provisioner/internal/version.commit=$(COMMIT)"
PROGRAMS := api worker standalone
MODULES := . hack/devcluster hack/helm hack/docker/roots hack/dashboards hack/prometheus hack/node

.PHONY: help
help: ## print this text
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: bin/standalone ## start everything on :8002 (your cluster if KUBECONFIG is set, else a development cluster); Ctrl-C stops it
	@$(NOCGO) build -buildvcs=false -o bin/run ./hack/run
	@exec bin/run

.PHONY: build
build: $(PROGRAMS:%=bin/%) ## compile api, worker and standalone into bin/

.PHONY: FORCE
$(PROGRAMS:%=bin/%): bin/%: FORCE
	@$(BUILD) $(STAMP) -o $@ ./cmd/$*

.PHONY: test
test: ## run every test with the race detector, against a real kube-apiserver and NATS; says how long each part took
	@hack/test.sh

.PHONY: smoke
smoke: bin/standalone ## start everything on free ports and play a gateway's day over HTTP
	@$(NOCGO) run -buildvcs=false ./hack/smoke

.PHONY: contract
contract: ## check the whole contract: decoding, validation, objects of every mode on a real API server, settings, documents
	@$(GO) run ./hack/tally contract ./internal/api ./internal/config ./internal/k8s ./internal/sandbox ./client ./test/contract ./test/cases

.PHONY: helm-test
helm-test: ## check the Helm chart: what it renders, on a real API server, with the rights and settings that it gives
	@$(BUILD) -o bin/tally ./hack/tally
	@cd hack/helm && CGO_ENABLED=0 ../../bin/tally helm -timeout 15m ./...

.PHONY: observe-test
observe-test: ## compare docs/metrics.md, dashboards and alerts with running programs under load and faults; 10,000 sandboxes add no series
	@$(GO) run ./hack/tally observe -race -timeout 15m ./test/observe

.PHONY: outage
outage: ## test long outages, full disks, poison and expiry
	@$(GO) test -timeout 15m ./test/outage

.PHONY: containers
containers: ## test with NATS and workers in Docker containers; gets and starts an engine if there is none, as root
	@hack/docker/engine.sh ensure && CI=true $(GO) test -timeout 20m ./test/containers

.PHONY: images
images: ## build the images of the programs, and that of NATS, from programs compiled here; needs a Docker engine and no registry
	@VERSION=$(VERSION) COMMIT=$(COMMIT) hack/docker/images.sh

.PHONY: compose-test
compose-test: ## test docker-compose.yaml with images built here; gets Docker and compose if they are missing, as root
	@hack/docker/engine.sh ensure && hack/docker/compose.sh && CI=true $(GO) test -v -count=1 -timeout 20m ./test/compose

.PHONY: chaos
chaos: build ## kill, freeze and cut off everything for CHAOS_SECONDS (60) under load, then check every promise; SEED replays
	@$(NOCGO) run -buildvcs=false ./hack/chaos

.PHONY: e2e
e2e: bin/helm ## install the chart on a real Kubernetes node, built and started for it, and use it; needs Linux and root
	@$(NOCGO) build -buildvcs=false -o bin/e2e/e2e ./hack/e2e
	@exec bin/e2e/e2e

.PHONY: footprint
footprint: build ## measure start-up time and idle memory of the programs
	@$(NOCGO) run -buildvcs=false ./hack/footprint

.PHONY: bench
bench: build ## measure everything against plain client-go into docs/benchmarks.md; BENCH_QUICK=1 takes a minute, BENCH_ONLY=create,drain these
	@$(BUILD) -o bin/bench ./hack/bench
	@exec bin/bench

.PHONY: mutants
mutants: ## take one rule of the protocol away at a time and see that the tests notice
	@hack/mutants.sh

.PHONY: fuzz
fuzz: ## fuzz the request decoder for FUZZ_SECONDS (60)
	@$(GO) test ./internal/api -run '^$$' -fuzz FuzzDecodeCreate -fuzztime $(or $(FUZZ_SECONDS),60)s

.PHONY: devcluster
devcluster: ## start only the development cluster: kube-apiserver, etcd, simulated node
	@cd hack/devcluster && $(BUILD) -o ../../bin/devcluster .
	@exec bin/devcluster start

.PHONY: verify
verify: bin/golangci-lint ## format, vet, lint, tidy, generated files; fails if that changes anything
	@hack/verify.sh $(MODULES)

.PHONY: fmt
fmt: bin/golangci-lint ## format the code
	@for m in $(MODULES); do (cd $$m && $(CURDIR)/bin/golangci-lint fmt ./...) || exit 1; done

.PHONY: generate
generate: ## write the Grafana dashboards anew
	@cd hack/dashboards && $(NOCGO) run -buildvcs=false . ../../deploy/grafana/dashboards

.PHONY: golden
golden: ## rewrite the golden files from what the code renders now; read the difference before you commit it
	@$(GO) test ./internal/config ./internal/cli ./internal/k8s -update
	@cd hack/helm && $(NOCGO) test -run OfTheRepository -update ./...
	@cd hack/helm && $(NOCGO) test -run AsReviewed -update ./...

bin/golangci-lint: hack/tools/go.mod
	@echo "building golangci-lint"
	@cd hack/tools && $(BUILD) -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Helm without these would take every cluster for a Kubernetes 1.20.
HELM := helm.sh/helm/v3
HELM_STAMP := -ldflags "$(foreach p,chartutil lint/rules,-X $(HELM)/pkg/$p.k8sVersionMajor=1 -X $(HELM)/pkg/$p.k8sVersionMinor=36)"

bin/helm: hack/helm/go.mod ## Helm, for the chart in deploy/helm
	@echo "building helm"
	@cd hack/helm && $(BUILD) $(HELM_STAMP) -o ../../bin/helm $(HELM)/cmd/helm

.PHONY: clean
clean: ## remove what was built, but for the Kubernetes programs, which take long
	@rm -rf $(addprefix bin/,$(PROGRAMS) run devcluster devcluster.* node node-images e2e golangci-lint helm tally prometheus)
