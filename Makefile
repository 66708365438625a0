# Every target works on a fresh machine that has git, make, gcc, Go and Python 3
# with venv: what it needs is fetched first, once. "make" lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Packages where goroutines meet: these are tested under the race detector too.
RACE := ./bridge/ ./ops/ ./optimizers/ ./savedmodels/ ./savedmodels/checkpoints/

# What is tested with both ends of the supported versions of libtensorflow.
COMPAT := ./bridge/... ./ops/... ./optimizers/... ./savedmodels/... ./examples/... ./cmd/...
VERSIONS := 2.21.0 2.16.2

# More flags for a target's program: make demo ARGS="--seed 3"
ARGS ?=

# What scripts/image/build reads: make image VARIANT=gpu
export ENGINE VARIANT TAG GO_IMAGE RUNTIME_IMAGE PIP_INDEX_URL CA_BUNDLE

# TensorFlow's own log: warnings and errors only (0 is everything).
export TF_CPP_MIN_LOG_LEVEL ?= 1

LIBTENSORFLOW := go run ./cmd/libtensorflow
WITH_PYTHON := --with scripts/parity/requirements.txt
# Before each command that builds against the library.
BUILD := flags=$$($(LIBTENSORFLOW) env) && eval "$$flags" &&
TEST := go run ./scripts/tests

.PHONY: help demo test test-compat parity bench check generate image image-test clean \
	go library python tools format vet staticcheck generated unit race

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: library ## train on real handwritten digits and draw what was learned, in build/demo
	@$(BUILD) go build -buildvcs=false -o build/sluice ./cmd/sluice
	@build/sluice demo --out build/demo $(ARGS)

test: check unit race parity ## everything that must hold: check, tests, race detector, parity with Python

# Each version has its own flags and directory, and is built against anew; the
# Python that models come from and go to is the newest's in both.
test-compat: python ## the tests with the oldest and the newest libtensorflow that are supported
	@python=$$($(LIBTENSORFLOW) env | grep SLUICE_PYTHON) && eval "$$python"; \
	home=$${SLUICE_LIBTENSORFLOW:-}; status=0; \
	for version in $(VERSIONS); do \
		echo "== libtensorflow $$version"; \
		test -z "$$home" || test $$version = $(firstword $(VERSIONS)) || export SLUICE_LIBTENSORFLOW="$$home-$$version"; \
		$(LIBTENSORFLOW) install --version $$version && flags=$$($(LIBTENSORFLOW) env --version $$version | grep -v SLUICE_PYTHON) || exit; \
		(eval "$$flags" && $(TEST) -name compat-$$version $(COMPAT)) || status=1; \
	done; exit $$status

parity: python ## compare every number with Python TensorFlow: build/parity.json
	@$(BUILD) go run ./scripts/parity $(ARGS)

bench: python ## measure against C, Python and the binding: build/bench.json
	@$(BUILD) go run ./scripts/bench $(ARGS)

check: format vet staticcheck generated ## what can be checked without running tests

generate: library ## write the generated code again
	@$(BUILD) go generate ./...

image: ## build the Docker images with docker, podman or buildah: sluice and sluice:dev
	@scripts/image/build

image-test: ## build them and do in them what the README says (as root where no engine runs yet)
	@scripts/image/test

clean: ## remove what was built here (the library stays in the user's cache)
	rm -rf build

# The steps below are what the targets above are made of.

go:
	@command -v go >/dev/null || { echo "there is no go on PATH: install Go 1.26 or newer, then run make again" >&2; exit 1; }

library: go
	@$(LIBTENSORFLOW) install

python: go
	@$(LIBTENSORFLOW) install $(WITH_PYTHON)

tools: go
	@go -C tools build -buildvcs=false -o ../build/tools/ tool

format: go
	@echo "== gofmt"; unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted (gofmt -w mends it):"; echo "$$unformatted"; exit 1; }

vet: library
	@echo "== go vet"; $(BUILD) go vet ./...

staticcheck: library tools
	@echo "== staticcheck"; $(BUILD) build/tools/staticcheck ./...

generated: library
	@echo "== generated code"; $(BUILD) scripts/check-generated

unit: python
	@echo "== tests"; $(BUILD) $(TEST) -name unit ./...

race: library
	@echo "== tests under the race detector"; $(BUILD) $(TEST) -name race -race $(RACE)
