# `make` lists the targets. All of them work in a fresh clone.

TARGET := $(or $(CARGO_TARGET_DIR),target)

# rustup installs cargo here. The current shell may not have it in its PATH yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build demo test test-quick test-long test-setup lint clean
.PHONY: bench-overhead bench-truth bench-coverage bench-client bench-insert-client bench-control bench-live-cycles bench-live-gain agree-with-sysbench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install the build requirements, or print how to
	@sh scripts/setup.sh

build: setup ## compile dbdyno
	cargo build --release

demo: build ## compile dbdyno, run experiments/demo.toml, print the path of its report
	@sh scripts/demo.sh "$(TARGET)/release/dbdyno"

test: test-setup lint ## format, lints and all tests
	@sh scripts/run-tests.sh

test-quick: setup ## tests that need no server, browser or compiler
	@sh scripts/run-tests.sh quick

test-long: test-setup ## all tests, with many more repetitions of kills and restarts
	@sh scripts/run-tests.sh long

test-setup:
	@sh scripts/setup.sh test

lint: setup ## check format and lints
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

clean: ## remove compiled files; keeps results/ and the build cache
	cargo clean
