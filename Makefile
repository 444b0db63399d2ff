# Thin: each target is one command that a person could type.
.PHONY: help setup demo test check fuzz soak emulated reproduce scale bench pins requirements clean

PYTHON := .venv/bin/python

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

setup: ## make everything the other targets need (Nix, .venv)
	@tools/setup.sh

demo: setup ## build hello-world, deploy it, call it in a sandbox
	@$(PYTHON) examples/demo.py

test: setup check ## all tests, with real Nix, bubblewrap and Docker
	@tools/setup.sh tests
	@$(PYTHON) -m pytest --numprocesses 2

check: setup ## formatting, lint, types, layers
	@$(PYTHON) tools/check.py

fuzz: setup ## throw hostile bytes at every reader, SECONDS=60 each
	@.venv/bin/uv pip install --quiet --require-hashes --no-deps --target .cache/fuzz/lib -r tests/fuzz/requirements.txt
	@PYTHONPATH=.cache/fuzz/lib SECONDS=$(or $(SECONDS),60) $(PYTHON) tests/fuzz

soak: setup ## call one runtime in every way while things break, for MINUTES=10
	@$(PYTHON) tests/soak --minutes $(or $(MINUTES),10)

emulated: setup ## build on an emulated arm64 machine, and compare; takes minutes
	@AGENTIX_EMULATED=1 $(PYTHON) -m pytest tests/integration/test_other_hosts.py

reproduce: setup ## build PROJECT=examples/hello-world in two places and on two Debians, and compare
	@$(PYTHON) tests/reproduce $(PROJECT)

scale: setup ## as many sandboxes at once as promised; create and cancel 200 times, SEED=1 each
	@AGENTIX_SCALE=$(or $(SEED),1) $(PYTHON) -m pytest tests/scale

projects: setup ## build and call real projects, some of them large, NAMES="jaxed seen"
	@$(PYTHON) tests/projects $(NAMES)

bench: setup ## measure, each number next to its reference
	@$(PYTHON) tests/benchmarks

pins: setup ## maintainers: pin the Debian toolchains anew
	@$(PYTHON) tools/pin_toolchains.py

requirements: setup ## maintainers: pin the development environment anew
	@.venv/bin/uv export --quiet --upgrade --no-emit-workspace --all-packages --group dev --no-header --no-annotate --format requirements.txt --output-file requirements-dev.txt

clean: ## remove what this Makefile made
	rm -rf .venv .cache dist examples/*/dist
