# geomix: `make demo` runs the main job on the built-in corpus, `make test` passes the tests; both make .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
CORES ?= $(shell nproc)
BIN := .venv/bin
export PYTHONUNBUFFERED := 1
# a thread a test process: two tests side by side use two cores better than one test on both
SIDE_BY_SIDE := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $$(( $(CORES) < 4 ? $(CORES) : 4 )) --dist loadfile

.PHONY: help env espnet espnet-test demo test lint debian-packages slurm-test faults gpu-test granite-mutations fuzz trainings clean-demo

help: ## what can be made here
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1|/' | column -t -s '|'

# one stamp a requirements file: a changed pin installs again, an unchanged one costs nothing
env: .venv/.run-stamp ## the pinned environment, in .venv

.venv/.run-stamp: requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "geomix needs $(PYTHON), 3.11 or newer (Debian: apt-get install python3 python3-venv)"; exit 1; }
	@PYTHONPATH=src $(PYTHON) -m geomix.interpreter $(BIN)/python
	@echo "== making .venv: torch, snakemake and the rest, pinned (about 2 minutes, 6 GB)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --requirement requirements.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

.venv/.test-stamp: requirements-test.txt .venv/.run-stamp
	@echo "== adding what the tests need to .venv"
	$(BIN)/pip install --quiet --requirement requirements-test.txt
	@touch $@

# an environment of its own over .venv's packages: $(call over_venv,FOLDER,PIP OPTIONS)
define over_venv
test -x $(1)/bin/python || $(BIN)/python -m venv --without-pip $(1)
echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" \
  > "$$($(1)/bin/python -c 'import site; print(site.getsitepackages()[0])')/main-environment.pth"
$(BIN)/pip --python $(1)/bin/python install --quiet --no-deps $(2)
@touch $(1)/.stamp
endef

.venv-peer/.stamp: requirements-peer.txt .venv/.test-stamp
	@echo "== making .venv-peer: transformers 4.57.1 beside .venv's torch (seconds, 100 MB)"
	$(call over_venv,.venv-peer,--requirement requirements-peer.txt)

espnet: .venv-espnet/.stamp ## ESPnet 202611, unpatched, for the track espnet, in .venv-espnet

# --ignore-requires-python: ESPnet asks for 3.12 and runs on 3.11
.venv-espnet/.stamp: requirements-espnet.txt .venv/.run-stamp
	@echo "== making .venv-espnet: ESPnet 202611 beside .venv's torch (half a minute, 400 MB)"
	$(call over_venv,.venv-espnet,--ignore-requires-python --requirement requirements-espnet.txt)

demo: .venv/.run-stamp ## train, decode, score and compare four arms on a built-in speech corpus (minutes on 2 cores)
	@echo "== demo: synthesise a small speech corpus, train four arms, decode, score, compare"
	$(BIN)/snakemake --configfile config/demo.yaml --cores $(CORES)
	@$(BIN)/geomix tables results/demo

# Debian packages that only tests use; without root those tests skip and say why
debian-packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=""; for p in sctk slurm-wlm munge chromium chromium-driver; do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	  if [ -n "$$missing" ]; then echo "== installing Debian packages for tests:$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi; \
	fi

lint: .venv/.test-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check -l 120 Snakefile rules

test: .venv/.test-stamp .venv-peer/.stamp .venv-espnet/.stamp debian-packages lint ## the tests (the environments and Debian packages they need are installed first)
	@echo "== tests against transformers 4.57.1"
	.venv-peer/bin/python -m pytest -m peer tests/models/granite
	@echo "== tests with ESPnet 202611"
	.venv-espnet/bin/python -m pytest -m espnet tests/espnet_track
	@echo "== tests on a real one-machine Slurm"
	$(BIN)/python -m pytest -m slurm
	@echo "== all other tests, side by side"
	$(SIDE_BY_SIDE) -m "not peer and not espnet and not slurm" --durations=25

espnet-test: .venv/.test-stamp .venv-espnet/.stamp ## the tests of the track espnet
	.venv-espnet/bin/python -m pytest -m espnet tests/espnet_track --durations=10

slurm-test: .venv/.test-stamp debian-packages ## the study and its interruptions on a real one-machine Slurm (root; about 6 minutes)
	$(BIN)/python -m pytest -m slurm

faults: .venv/.test-stamp ## kill trainings at 20 random moments and run on: everything byte-identical?
	$(BIN)/python -m tests.faults.harness --kills 20

gpu-test: ## every kernel, a step of each arm and a short training on this machine's GPU (under ten minutes; plain python3)
	PYTHONPATH=src $(PYTHON) -m tests.gpu --out results/bench

granite-mutations: .venv/.test-stamp ## each fault that a Granite implementation may have, put in and caught
	$(BIN)/python -m tests.granite_mutations

fuzz: .venv/.test-stamp ## ten minutes of random recordings, corpora, configurations, hypotheses and states: success or one sentence?
	$(BIN)/python -m tests.fuzz --minutes 10

# -: one that fails does not stop the others
trainings: .venv/.run-stamp ## the project's own long trainings, one thread, one after another; it goes on where it stopped (days)
	-$(BIN)/snakemake --configfile config/an4.yaml --cores 1 --keep-going
	-$(BIN)/snakemake --configfile config/demo.yaml config/anatomy.yaml --cores 1 --keep-going
	-$(BIN)/snakemake language --configfile config/wikitext2.yaml --cores 1 --keep-going
	-$(BIN)/snakemake algebra --configfile config/demo.yaml config/algebra.yaml --cores 1 --keep-going

clean-demo: ## forget the demo run and its corpus
	-$(BIN)/geomix forget demo
	rm -rf results/demo data/demo
