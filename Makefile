# One virtual environment, .venv, made by `make install`; needs Python 3.10-3.13 and a package registry, nothing else.
PYTHON ?= python3
WORKSPACE ?= $(HOME)/tfcluster
PORT ?= 8888
BENCH ?=
PYTEST_ARGS ?=
KUBE := PYTHONPATH=tests/kube sh tools/python.sh -m kubenode
BIN := .venv/bin
CODE := tfcluster_magic tests tools benchmarks examples setup.py
export PYTHON
.DEFAULT_GOAL := help
.PHONY: help install dev run test lint types fix bench docs lock dist clean \
	kube-build kube-up kube-down kube-shell test-kube bench-kube

help:  ## this list
	@echo "TFCluster: distributed TensorFlow from a notebook. Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'
	@echo "Options: PORT=8888 WORKSPACE=~/tfcluster (run), PYTHON=python3.12 (install), BENCH=list_50 (bench), PYTEST_ARGS='-k magic' (test)"

install:  ## make .venv with TensorFlow, JupyterLab and the tfcluster command
	@sh tools/python.sh tools/install.py run

dev:  ## the same, with the tools for tests and lint
	@sh tools/python.sh tools/install.py dev

run: install  ## open JupyterLab with the examples, on this machine only
	@$(BIN)/python tools/lab.py --workspace "$(WORKSPACE)" --port "$(PORT)"

test: lint types  ## lint, types, layers, then every test
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

lint: dev  ## style and layers, changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: dev  ## mypy --strict
	$(BIN)/mypy

fix: dev  ## repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

kube-build:  ## build the Kubernetes node of the tests: Go servers, Debian trees, images
	$(KUBE) build

kube-up:  ## start a real Kubernetes cluster on this machine (root; tests/kube/README.md)
	$(KUBE) up

kube-down:  ## end it and remove all of it but the cache
	$(KUBE) down

kube-shell:  ## a shell with kubectl and KUBECONFIG of that cluster
	@$(KUBE) shell

test-kube: dev  ## the tests on that cluster; KUBECONFIG=... CLUSTER=about-it.toml for another one
	$(BIN)/python -m pytest tests/kube $(PYTEST_ARGS)

bench-kube: dev  ## measure reading from shared claims beside local disk, into build/bench/ (root)
	$(BIN)/python tests/kube/bench_storage.py

bench: dev  ## measure beside plain TensorFlow, into build/bench/
	$(BIN)/python -m benchmarks $(BENCH)

docs: dev  ## rewrite docs/cli.md and the JSON Schema from the code
	$(BIN)/python tools/cli_docs.py
	$(BIN)/python tools/schema.py

lock:  ## pin the newest allowed versions into requirements/
	@sh tools/lock.sh

dist: dev  ## wheel and sdist into dist/
	rm -rf build/lib*
	$(BIN)/python -m build

clean:  ## remove what make made: .venv, build, dist, caches
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find tfcluster_magic tests tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	rm -f tfcluster_magic/runtime/*.so
