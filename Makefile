# `make` lists the targets. Everything works from a fresh clone.

TARGET := $(or $(CARGO_TARGET_DIR),target)

# rustup may have put cargo here without this shell knowing it yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build demo test lint clean
.PHONY: bench-overhead bench-truth bench-coverage bench-client bench-insert-client bench-control bench-live-cycles bench-live-gain agree-with-sysbench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## check what building needs, and get it or say how
	@sh scripts/setup.sh

build: setup ## compile dbdyno for use
	cargo build --release

demo: build ## compile, run experiments/demo.toml, say where its report is
	@sh scripts/demo.sh "$(TARGET)/release/dbdyno"

test: ## all checks: format, lints, tests; gets what the tests need
	@sh scripts/setup.sh test
	@$(MAKE) --no-print-directory lint
	@mkdir -p "$(TARGET)"
	@sh scripts/nothing-left.sh list > "$(TARGET)/there-before-the-tests"
	cargo test --workspace --no-fail-fast
	@sh scripts/nothing-left.sh since "$(TARGET)/there-before-the-tests"

lint: setup ## format and lints only
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench-overhead: setup ## what dbdyno itself costs
	cargo run --release -p dbdyno-benches --bin overhead

bench-truth: setup ## whether dbdyno reports differences of known size
	cargo run --release -p dbdyno-benches --bin truth

bench-coverage: setup ## how often its intervals hold what they should
	cargo run --release -p dbdyno-benches --bin coverage

bench-client: ## what dbdyno costs on a server, beside sysbench
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-benches --bin client

bench-insert-client: ## what its insert benchmark costs, beside a plain client in Python
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-benches --bin insert-client

bench-control: ## how far from 1 a server beside its equal is reported
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-benches --bin control

bench-live-cycles: ## whether a server survives the live optimizer under load
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-benches --bin live-cycles

bench-live-gain: ## what the live optimizer brings, in one process
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-benches --bin live-gain

agree-with-sysbench: ## whether sysbench finds the same ratios of engines
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-benches --bin agreement

clean: ## remove what cargo has built; results/ and the build cache stay
	cargo clean
