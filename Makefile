# Shortcuts. Everything here is a command that can be typed by hand; CONTRIBUTING.md explains when to use which.

.PHONY: help quick test all long

help:
	@echo 'make quick          lints, unit tests, conformance on memory and SQLite: no Postgres, no etcd'
	@echo 'make test NAME=...  the end-to-end tests whose names contain NAME: real Postgres and etcd'
	@echo 'make all            installs what is missing, then all checks and tests, as CI does'
	@echo 'make long           what takes hours: before a release'

# No test here starts Postgres or etcd.
quick:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --locked --quiet -p fencegate-wire -p fence-core -p fencegate -p fencegate-client --lib
	cargo test --locked --quiet -p fencegate-client --test vectors
	cargo test --locked --quiet -p fence-tests --test it -- ::in_memory ::on_sqlite

test:
	@test -n '$(NAME)' || { echo 'which ones? make test NAME=a_part_of_their_names'; exit 2; }
	cargo build --locked -p fencegate
	cargo build --locked -p fencegate-cli
	cargo test --locked -p fence-tests --test it -- $(NAME)

all:
	./tests/run.sh

long:
	cargo run --release --locked -p fence-model
	cargo run --release --locked -p fence-simulation -- run --seeds 100000
	cargo run --release --locked -p fence-simulation -- mutants
	cargo build --release --locked -p fencegate -p fence-chaos -p fence-bench -p fencegate-conformance
	target/release/fence-chaos run --minutes 20 --out target/chaos
	target/release/fence-chaos run --minutes 20 --out target/chaos --client target/release/rust-driver
	tests/clients.sh
	target/release/fence-chaos newer-gateway --release
	target/release/fence-chaos run --minutes 3 --out target/chaos-upgrade --newer-gateway target/release/fencegate-newer
	target/release/fence-chaos schedules --minutes 20 --out target/schedules
	target/release/fence-bench --against tests/bench/recorded.json --out target/bench
	target/release/fence-bench access
	tests/fuzz/run.sh all
