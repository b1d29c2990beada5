# Shortcuts. Everything here is a command that can be typed by hand; CONTRIBUTING.md explains when to use which.

.PHONY: help quick test all speed compare house long long-surveys long-chaos long-clients long-s3 long-fuzz long-speed long-repeats long-spec mutants

target := $(or $(CARGO_TARGET_DIR),target)
tools := $(target)/tools
nextest := $(tools)/gate/bin/cargo-nextest nextest run --locked
# Our crates are compiled by Clippy, as in tests/run.sh: lints and tests cost one compilation.
linting := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=--cap-lints__CLIPPY_HACKERY__warn__CLIPPY_HACKERY__
quickly := --locked --workspace --lib --bin fence-house --test vectors --test it

help:
	@echo 'make quick          lints, unit tests, conformance on memory and SQLite: no Postgres, no etcd'
	@echo 'make test NAME=...  the end-to-end tests whose names contain NAME: real Postgres and etcd'
	@echo 'make all            installs what is missing, then all checks and tests, as CI does'
	@echo 'make mutants        all mutants of the rule, the acts and the SQL'
	@echo 'make speed          a quarter of an hour: the comparison with what people would use instead, in its short form'
	@echo 'make compare BASE=  whether it is slower than a commit, or than a gateway at a path; ROWS=put,get for some rows'
	@echo 'make house          counts lines, long files, doc comments, helpers of tests and waits; AGAINST=COMMIT adds differences'
	@echo 'make long           what takes hours: before a release; its parts are long-surveys, long-chaos ...'

# No test here starts Postgres or etcd.
quick:
	cargo fmt --all --check
	mkdir -p $(target)
	$(linting) cargo test $(quickly) --no-run 2> $(target)/quick.log || { cat $(target)/quick.log; exit 1; }
	python3 tests/gate/lints.py $(target)/quick.log
	$(linting) cargo test --locked --quiet --workspace --lib --bin fence-house --test vectors
	$(linting) cargo test --locked --quiet --workspace --test it -- ::in_memory ::on_sqlite

test:
	@test -n '$(NAME)' || { echo 'which ones? make test NAME=a_part_of_their_names'; exit 2; }
	cargo build --locked -p fencegate -p fencegate-cli
	$(linting) cargo test --locked --workspace --test it -- $(NAME)

all:
	./tests/run.sh

# What is released is optimized as a whole, which takes ten minutes more and makes it a tenth faster: what is measured here
# goes without, as in tests/bench/compare.sh.
speed:
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		cargo build --release --locked -p fencegate -p fence-bench
	target/release/fence-bench --short --out target/bench

# BOUGHT=put=docs/decisions/...md lets a row be slower on purpose.
compare:
	@test -n '$(BASE)' || { echo 'with what? make compare BASE=a_commit_or_a_path'; exit 2; }
	tests/bench/compare.sh '$(BASE)' $(if $(ROWS),--rows '$(ROWS)') $(if $(BOUGHT),--bought '$(BOUGHT)')

# Fails if a wait of a test is not in tests/house/waits.txt, or if one there is gone.
house:
	cargo run --locked --quiet -p fence-house -- $(if $(AGAINST),--against '$(AGAINST)')

# The ordinary tests leave out the mutants of which nothing has changed since this passed.
mutants:
	cargo build --locked --workspace --tests --bin fence-chaos
	cargo build --locked -p fencegate -p fencegate-cli
	$(target)/debug/fence-servers $(nextest) --profile long --workspace -E "$$(tests/gate/mutants.py --tests)"
	tests/gate/mutants.py --caught

# After a whole run of tests/run.sh, which has installed and built what these need.
long: long-surveys long-spec long-chaos long-clients long-s3 long-fuzz long-repeats long-speed

# Each survey in its full length, with fresh seeds.
long-surveys: mutants
	cargo clippy -p fencegate --no-default-features --locked -- -D warnings
	FENCE_TEST_LONG=1 $(target)/debug/fence-servers $(nextest) --profile long --workspace
	cargo run --release --locked -p fence-model
	cargo run --release --locked -p fence-simulation -- run --seeds 100000
	cargo run --release --locked -p fence-simulation -- mutants

# The specification in each bound, its mutants, and what it rests on.
long-spec:
	tests/spec/check.sh all

long-chaos:
	cargo build --release --locked -p fencegate -p fence-chaos -p fencegate-conformance
	target/release/fence-chaos run --minutes 20 --out target/chaos
	target/release/fence-chaos run --minutes 20 --out target/chaos --client target/release/rust-driver
	target/release/fence-chaos newer-gateway --release
	target/release/fence-chaos run --minutes 3 --out target/chaos-upgrade --newer-gateway target/release/fencegate-newer
	target/release/fence-chaos schedules --minutes 20 --out target/schedules

long-clients:
	tests/clients.sh

long-s3:
	FENCE_TEST_LONG=1 tests/s3/long.sh

long-fuzz:
	tests/fuzz/run.sh all

long-speed:
	cargo build --release --locked -p fencegate -p fence-bench
	target/release/fence-bench --out target/bench
	target/release/fence-bench access
	target/release/fence-bench seen
	target/release/fence-bench s3
	target/release/fence-bench hostile

# The lightest nine tenths of the tests, twenty times: none may fail now and then.
long-repeats:
	tests/gate/repeats.py
