# geomix: `make demo` runs the main job on the built-in corpus, `make test` passes the tests; both make .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
CORES ?= $(shell nproc)
BIN := .venv/bin
export PYTHONUNBUFFERED := 1

.PHONY: help env demo test lint debian-packages bench clean-demo

help: ## what can be made here
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1|/' | column -t -s '|'

# one stamp a requirements file: a changed pin installs again, an unchanged one costs nothing
env: .venv/.run-stamp ## the pinned environment, in .venv

.venv/.run-stamp: requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "geomix needs $(PYTHON), 3.11 or newer (Debian: apt-get install python3 python3-venv)"; exit 1; }
	@echo "== making .venv: torch, snakemake and the rest, pinned (about 2 minutes, 6 GB)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --requirement requirements.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

.venv/.test-stamp: requirements-test.txt .venv/.run-stamp
	@echo "== adding what the tests need to .venv"
	$(BIN)/pip install --quiet --requirement requirements-test.txt
	@touch $@

demo: .venv/.run-stamp ## train, decode, score and compare four arms on a built-in speech corpus (about 8 minutes on 2 cores)
	@echo "== demo: synthesise a small speech corpus, train four arms, decode, score, compare"
	$(BIN)/snakemake --configfile config/demo.yaml --cores $(CORES)
	@$(BIN)/geomix tables results/demo

# Debian packages that only tests use; without root those tests skip and say why
debian-packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=""; for p in sctk; do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	  if [ -n "$$missing" ]; then echo "== installing Debian packages for tests:$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi; \
	fi

lint: .venv/.test-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check -l 120 Snakefile rules

test: .venv/.test-stamp debian-packages lint ## all tests (the environment and Debian packages they need are installed first)
	@echo "== tests"
	$(BIN)/python -m pytest --durations=15

clean-demo: ## forget the demo run and its corpus
	rm -rf results/demo state/demo data/demo
