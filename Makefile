# Every command that the README names. `make` alone lists them.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help up install install-server quick test check nightly demo bench load soak chaos hostile race siege docker-e2e elsewhere service fuzz claude-e2e peers python inspector conformance schemathesis

# Optimised code without the minutes of the released one; see [profile.quick] in Cargo.toml.
QUICK := target/quick
# What builds the lab and the programs that it starts, in the profile that follows.
LAB := cargo build --locked -p c3po-lab -p c3po -p c3po-coordinator --profile
# The two programs as they are given away: they run on other Linux systems too.
SHIPPED := target/shipped
WITH_CLAUDE := cargo nextest run --locked --workspace -E 'package(c3po-outside) & test(/^(claude|last_hop)::/)'
LISTEN ?= $(or $(C3PO_LISTEN),127.0.0.1:8420)
PREFIX ?= $(HOME)/.local
SECONDS_EACH ?= 600
SEED ?= 1

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

up: ## build and run a coordinator with the embedded store on 127.0.0.1:8420; LISTEN=ADDRESS:PORT for another address
	@tests/setup/rust
	@tests/setup/say 'building (a first build takes some minutes)'
	@tests/setup/programs quick $(SHIPPED)
	@tests/setup/how-to-connect "$(CURDIR)/$(SHIPPED)/c3po" '$(LISTEN)'
	@exec $(SHIPPED)/c3po-coordinator --listen '$(LISTEN)'

install: ## build c3po and install it into PREFIX/bin, by default ~/.local/bin
	@tests/setup/rust
	@tests/setup/say 'building (seconds after `make up`, else some minutes)'
	@tests/setup/programs quick $(SHIPPED)
	install -d '$(PREFIX)/bin'
	install -m 755 $(SHIPPED)/c3po '$(PREFIX)/bin/c3po'
	@umask go-w && '$(PREFIX)/bin/c3po' man '$(PREFIX)/share/man/man1'
	@tests/setup/how-to-install '$(PREFIX)/bin'

install-server: ## build a coordinator and install it as a systemd service that serves the network with TLS
	@tests/setup/rust
	@tests/setup/say 'building (a first build takes some minutes)'
	@tests/setup/programs quick $(SHIPPED)
	@dist/install-server $(SHIPPED)

quick: ## the inner loop: formatter, linter and the fast tests
	@tests/setup/rust
	@tests/setup/install nextest redis
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo nextest run --locked --workspace --profile quick

test: ## everything that must pass to land: formatter, linter and every test; installs their tools
	@tests/setup/run-tests

nightly: ## the slow tests: chaos, a hostile day, races, siege, a short soak, schemathesis, fuzzing, Docker, other systems
	$(MAKE) chaos
	$(MAKE) hostile
	$(MAKE) race
	$(MAKE) siege
	$(MAKE) soak ARGS='--minutes 10'
	$(MAKE) schemathesis
	$(MAKE) fuzz SECONDS_EACH=120
	$(MAKE) docker-e2e
	$(MAKE) elsewhere
	$(MAKE) service

check: ## formatter, linter, documentation, scripts of the pages, workflows, licences and advisories; needs cargo-deny
	@tests/setup/rust
	@tests/setup/say 'formatter'
	cargo fmt --all --check
	@tests/setup/say 'linter'
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@tests/setup/say 'documentation'
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --locked --workspace --no-deps
	@tests/setup/say 'scripts of the pages'
	@tests/setup/check-web
	@tests/setup/say 'workflows'
	@tests/setup/check-workflows
	@tests/setup/check-dependencies

demo: ## two agents talk through two real proxies
	@tests/setup/say 'building'
	$(LAB) quick
	@exec $(QUICK)/lab demo

bench: ## figures and their floors, in one run; ARGS='send hooks --quick' for a part, ARGS='--programs DIR' to compare another build
	@tests/setup/install redis tmux claude
	@tests/setup/say 'building'
	$(LAB) bench
	@exec target/release/lab bench $(ARGS)

load: ## thousands of agents on one coordinator; ARGS='--help' lists the options
	@tests/setup/install redis
	@tests/setup/say 'building'
	$(LAB) quick
	@exec $(QUICK)/lab load $(ARGS)

soak: ## an hour of mixed load: memory and file descriptors must not grow; ARGS='--minutes 5' for less
	@tests/setup/install redis
	@tests/setup/say 'building'
	$(LAB) quick
	@exec $(QUICK)/lab soak $(ARGS)

chaos: ## 10,000 messages and 200 questions to people while everything is killed: none lost, none twice; ARGS='--help' lists the options
	@tests/setup/install redis ntfy
	@tests/setup/say 'building'
	$(LAB) quick
	@exec $(QUICK)/lab chaos $(ARGS)

hostile: ## half an hour of real sessions with unpredictable users: no message lost; ARGS='--seed 7' repeats a run
	@tests/setup/install tmux claude
	@tests/setup/say 'building'
	$(LAB) quick
	@exec $(QUICK)/lab hostile $(ARGS)

race: ## every decision against every other way, about every kind of request, on each store (hours); SEED=7 repeats a run
	@tests/setup/install tmux claude redis
	@for store in sqlite redis; do C3PO_RACE_STORE=$$store C3PO_RACE_TABLE=1 C3PO_RACE_SEED='$(SEED)' \
	    cargo nextest run --locked --workspace --profile race -E 'test(last_hop::race)' || exit 1; done

siege: ## 20,000 hostile connections to a coordinator with 512 MB, on each store; ARGS='--seconds 20 --store sqlite' for less
	@tests/setup/install redis
	@tests/setup/say 'building'
	$(LAB) quick
	@exec $(QUICK)/lab siege $(ARGS)

docker-e2e: ## build the image and run docker-compose.yml with a real Docker Engine; on Debian as root it installs one
	@tests/setup/docker-e2e

elsewhere: ## the shipped programs on a Debian 11 and without a C library; on Debian as root
	@tests/setup/elsewhere

service: ## install-server on a Debian with systemd, in a container; on Debian as root
	@tests/setup/service

fuzz: ## every fuzz target for SECONDS_EACH=600, two at a time; ARGS='join_code' for one of them
	@SECONDS_EACH='$(SECONDS_EACH)' tests/setup/fuzz $(ARGS)

claude-e2e: ## only the tests with the real Claude Code, in the pinned version and an older one
	@tests/setup/install nextest tmux claude claude-older
	@tests/setup/with-claude VERSION $(WITH_CLAUDE)
	@tests/setup/with-claude OLDER $(WITH_CLAUDE)

peers: python inspector conformance ## other MCP clients against the real proxy and coordinator

python: ## the official Python MCP client calls every tool
	@tests/peers/run python

inspector: ## the MCP inspector calls every tool
	@tests/peers/run inspector

conformance: ## the official MCP conformance suite against /mcp
	@tests/peers/run conformance

schemathesis: ## ten minutes of requests from the OpenAPI description, in every role; ARGS=20 for 20 s in each of ten runs
	@tests/setup/install redis
	@tests/setup/say 'building'
	cargo build --locked -p c3po -p c3po-coordinator --profile quick
	@exec tests/setup/schemathesis $(ARGS)
