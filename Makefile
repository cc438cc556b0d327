# `make` lists the targets. All of them work in a fresh clone.

TARGET := $(or $(CARGO_TARGET_DIR),target)

# rustup installs cargo here. The current shell may not have it in its PATH yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build demo install uninstall deb test test-quick test-full check-aarch64 test-servers test-others test-setup fuzz format lint size clean
.PHONY: bench-overhead bench-truth bench-coverage bench-control bench-gate bench-why bench-sampling bench-client bench-live-cycles bench-live-gain bench-live-suite bench-live-throws

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install the build requirements, or print how to
	@sh scripts/setup.sh

build: setup ## compile dbdyno
	cargo build --release

demo: build ## compile dbdyno, run experiments/demo.toml, print the path of its report
	@sh scripts/demo.sh "$(TARGET)/release/dbdyno"

# Where `make install` puts files; DESTDIR comes before all of them, for packagers.
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man/man1
BASH_COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS ?= $(PREFIX)/share/fish/vendor_completions.d
# The program to install.
PROGRAM ?= $(TARGET)/release/dbdyno
# Where `make deb` collects what crates/7-program/cli/Cargo.toml names.
SHARE := $(TARGET)/release/share

# No dependency on `build`: `sudo make install` should not compile as root.
install: ## install the program, man pages and completions; PREFIX, DESTDIR
	@test -x "$(PROGRAM)" || { echo "$(PROGRAM) does not exist: run make build first, or name the program with PROGRAM=FILE (sudo drops CARGO_TARGET_DIR)" >&2; exit 1; }
	install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(MANDIR)" "$(DESTDIR)$(BASH_COMPLETIONS)" \
		"$(DESTDIR)$(ZSH_COMPLETIONS)" "$(DESTDIR)$(FISH_COMPLETIONS)"
	install -m 755 "$(PROGRAM)" "$(DESTDIR)$(BINDIR)/dbdyno"
	"$(PROGRAM)" man "$(DESTDIR)$(MANDIR)"
	"$(PROGRAM)" completions bash > "$(DESTDIR)$(BASH_COMPLETIONS)/dbdyno"
	"$(PROGRAM)" completions zsh > "$(DESTDIR)$(ZSH_COMPLETIONS)/_dbdyno"
	"$(PROGRAM)" completions fish > "$(DESTDIR)$(FISH_COMPLETIONS)/dbdyno.fish"

uninstall: ## remove what `make install` installed
	rm -f "$(DESTDIR)$(BINDIR)/dbdyno" "$(DESTDIR)$(MANDIR)/dbdyno.1" \
		"$(DESTDIR)$(MANDIR)"/dbdyno-*.1 "$(DESTDIR)$(BASH_COMPLETIONS)/dbdyno" \
		"$(DESTDIR)$(ZSH_COMPLETIONS)/_dbdyno" "$(DESTDIR)$(FISH_COMPLETIONS)/dbdyno.fish"

deb: build ## make a Debian package; installs cargo-deb if it is missing
	@command -v cargo-deb >/dev/null || cargo install --locked cargo-deb
	@rm -rf "$(SHARE)"
	@$(MAKE) --no-print-directory install DESTDIR="$(SHARE)" PREFIX=/usr
	gzip -9 -n "$(SHARE)"/usr/share/man/man1/*.1
	cargo deb -p dbdyno --no-build

test: test-setup format ## format, lints and the tests of every day: 10 minutes
	@sh scripts/run-tests.sh

test-quick: setup ## tests that need no server, browser or compiler: a minute
	@sh scripts/run-tests.sh quick

test-full: test-setup format check-aarch64 ## all tests: more systems, sizes and moments of kills, for hours
	@sh scripts/run-tests.sh full

test-servers: test-setup
	@sh scripts/run-tests.sh servers

test-others: test-setup
	@sh scripts/run-tests.sh others

check-aarch64: ## whether dbdyno compiles for aarch64
	@sh scripts/setup.sh full
	@command -v rustup >/dev/null || { echo "check-aarch64 needs rustup, for the target's standard library" >&2; exit 1; }
	rustup target add aarch64-unknown-linux-gnu
	CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
		cargo check --workspace --target aarch64-unknown-linux-gnu

# Seconds for each test with damaged input.
FUZZ_SECONDS ?= 600

fuzz: test-setup ## try new damaged input for every parser; FUZZ_SECONDS for each
	DBDYNO_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --no-fail-fast -p dbdyno-audit -p dbdyno-builds \
		-p dbdyno-drivers -p dbdyno-fleet -p dbdyno-hosts -p dbdyno-import -p dbdyno-live -p dbdyno-relayout \
		-p dbdyno-profile -p dbdyno-report -p dbdyno-results -p dbdyno-run -p dbdyno-spec -p dbdyno-workloads \
		--lib --tests \
		-- --nocapture --test-threads=1 damaged_ extreme_numbers arbitrary_

test-setup:
	@sh scripts/setup.sh test

format: setup
	cargo fmt --all --check
	@sh scripts/size.sh check

lint: format ## check format and lints; `make test` does it while it compiles
	cargo clippy --workspace --all-targets -- -D warnings

size: ## lines of code, comments, tests, and files of each crate
	@sh scripts/size.sh

bench-overhead: setup ## cost of the hot loop compared with a loop in C
	cargo run --release -p dbdyno-selfbench --bin overhead

bench-truth: setup ## error of reported differences of known size
	cargo run --release -p dbdyno-selfbench --bin truth -- delays

bench-coverage: setup ## coverage of the confidence intervals
	cargo run --release -p dbdyno-selfbench --bin truth -- coverage

bench-client: ## CPU cost of the load generator compared with sysbench
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-selfbench --bin load-generator -- client

bench-control: ## reported difference between two equal servers
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-selfbench --bin truth -- control

bench-gate: setup ## how often a rule of `--fail-if` finds a difference of 5%, and one of 0%
	cargo run --release -p dbdyno-selfbench --bin truth -- gate

# sqlite or mariadb, which is compiled twice (20 minutes).
PLANTED ?= sqlite

bench-why: setup ## how often `dbdyno why` names a function that was made slower, and one of equal builds; PLANTED
	cargo run --release -p dbdyno-selfbench --bin truth -- planted --system $(PLANTED)

bench-sampling: setup ## sampled time of a server that spins for known times
	cargo run --release -p dbdyno-selfbench --bin truth -- samples

bench-live-cycles: ## whether a server survives the live optimizer under load
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-selfbench --bin live -- cycles

# mariadb, or `postgresql SOURCE` with the directory of PostgreSQL's source.
SUITE ?= mariadb

bench-live-suite: ## whether a server passes its own test suite when it is optimized; SUITE
	@sh scripts/setup.sh bench
	cargo build --release -p dbdyno-selfbench --bin live
	@TARGET="$(TARGET)" sh scripts/live-suite.sh $(SUITE)

bench-live-throws: ## cost of registered frames for C++ exceptions
	@sh scripts/setup.sh bench
	mkdir -p "$${CARGO_TARGET_DIR:-target}"
	g++ -O2 -pthread -o "$${CARGO_TARGET_DIR:-target}/throws" crates/7-program/selfbench/src/throws.cpp
	"$${CARGO_TARGET_DIR:-target}/throws"

bench-live-gain: ## gain of the live optimizer, measured within one process
	@sh scripts/setup.sh bench
	cargo run --release -p dbdyno-selfbench --bin live -- gain

clean: ## remove compiled files; keeps results/ and the build cache
	cargo clean
