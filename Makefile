# One virtual environment, .venv, made by `make install`; needs Python 3.10-3.13 and a package registry, nothing else.
PYTHON ?= python3
WORKSPACE ?= $(HOME)/tfcluster
PORT ?= 8888
BASE_URL ?=
SUBDOMAIN_HOST ?=
HUB ?= 1
NAME ?= $(shell id -un)
BENCH ?=
ATTACK ?=
PYTEST_ARGS ?=
BIN := .venv/bin
SUITE := $(BIN)/python tools/suite.py
TS := $(BIN)/python tools/labextension.py run
KUBE := PYTHONPATH=tests/kube sh tools/python.sh -m kubenode
CODE := tfcluster_magic tests tools benchmarks examples setup.py tfcluster.py
export PYTHON
unexport PYTHONDONTWRITEBYTECODE # many containers set it, and each process would then compile all modules that it imports
.DEFAULT_GOAL := help
.PHONY: help install dev run password test test-long attack programs test-page lint types fix bench docs site pictures translations lock dist clean \
	kube-build kube-up kube-down kube-shell test-kube bench-kube bench-hub test-jupyters

help:  ## this list
	@echo "TFCluster: distributed TensorFlow from a notebook. Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'
	@echo "Options: PORT=8888 WORKSPACE=~/tfcluster BASE_URL=/tf/ SUBDOMAIN_HOST=hub.localhost HUB=0 (run), PYTHON=python3.12 (install), BENCH=list_50 (bench), PYTEST_ARGS='-k magic' or --long (test, test-kube), ATTACK='--seed 7 --only requests' (attack)"

install:  ## make .venv with TensorFlow, JupyterLab and the tfcluster command
	@sh tools/python.sh tools/install.py run

dev:  ## the same, with the tools for tests and lint
	@sh tools/python.sh tools/install.py dev

run: install  ## open a JupyterHub with the examples, on this machine only; HUB=0: JupyterLab alone
ifeq ($(HUB),0)
	@$(BIN)/python tools/lab.py --workspace "$(WORKSPACE)" --port "$(PORT)"
else
	@$(BIN)/python tools/hub.py --workspace "$(WORKSPACE)" --port "$(PORT)" --base-url "$(BASE_URL)" --subdomain-host "$(SUBDOMAIN_HOST)"
endif

password: install  ## end your sessions at the hub and print a link that sets a new password; NAME=somebody for another user
	@$(BIN)/python -m tfcluster_magic.hub accounts reset "$(NAME)"

test: lint types test-page site  ## lint, types, layers, docs, then the tests: Python, TypeScript, server, browser
	@$(BIN)/python tools/old_tensorflow.py
	$(SUITE) -n 3 --dist worksteal $(PYTEST_ARGS)
	$(SUITE) tests/server -n 4 --dist worksteal $(PYTEST_ARGS)
	@$(BIN)/python tools/browser.py
	$(SUITE) tests/ui --ignore tests/ui/test_jupyters.py -n 3 --dist worksteal $(PYTEST_ARGS)
	$(SUITE) tests/hub -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-long: dev  ## the tests marked `long`: more cases of kinds that make test shows once
	@$(BIN)/python tools/old_tensorflow.py
	@$(BIN)/python tools/browser.py
	$(SUITE) -m long --long -n 3 --dist worksteal $(PYTEST_ARGS)
	$(SUITE) tests/ui --ignore tests/ui/test_jupyters.py -m long --long -n 3 --dist worksteal $(PYTEST_ARGS)
	$(SUITE) tests/hub -m long --long -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

attack: dev  ## attack a hub and runs of its own with hostile inputs, kills and races for five minutes (docs/how-to/develop.md)
	@PYTHONPATH=tests:tests/kube $(BIN)/python -m attack $(ATTACK)

programs: dev  ## every program of tests/programs, as people bring them
	@$(BIN)/python tools/old_tensorflow.py
	$(SUITE) tests/programs -n 2 --dist worksteal --long $(PYTEST_ARGS)

test-page: dev
	$(TS) test

test-jupyters: dev  ## the browser tests of JupyterLab 4.2 and the newest, and Notebook 7, in build/jupyter
	@$(BIN)/python tools/browser.py
	$(SUITE) tests/ui/test_jupyters.py $(PYTEST_ARGS)

lint: dev  ## style and layers, changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(TS) lint:check

types: dev  ## mypy --strict (TypeScript is checked by lint)
	$(BIN)/mypy

fix: dev  ## repair what ruff, prettier and eslint can repair, and list the rest
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	@status=0; $(TS) fix || status=1; $(BIN)/ruff check . || status=1; exit $$status

kube-build:  ## build the Kubernetes node of the tests: Go servers, Debian trees, images
	$(KUBE) build

kube-up:  ## start a real Kubernetes cluster on this machine (root; tests/kube/README.md)
	$(KUBE) up

kube-down:  ## end it and remove all of it but the cache
	$(KUBE) down

kube-shell:  ## a shell with kubectl and KUBECONFIG of that cluster
	@$(KUBE) shell

test-kube: dev  ## the tests on that cluster; KUBECONFIG=... CLUSTER=about-it.toml for another one
	@$(BIN)/python tools/browser.py
	$(SUITE) tests/kube -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

bench-kube: dev  ## measure the operator, the hub's spawns, shared claims, and WITH=kwok 600 tasks, into build/bench/ (root)
	$(BIN)/python -m pytest tests/kube/bench_operator.py tests/kube/bench_hub.py -q -s
	$(BIN)/python tests/kube/bench_storage.py
ifneq ($(findstring kwok,$(WITH)),)
	PYTHONPATH=tests:tests/kube $(BIN)/python -m bench_scale $(BENCH)
endif

bench: dev  ## measure beside plain TensorFlow, into build/bench/
	$(BIN)/python -m benchmarks $(BENCH)

bench-hub: dev  ## measure the hub with 500 people, 100 sign-ins and 40 notebooks in two minutes, and the console with 2000 clusters
	@$(BIN)/python tools/browser.py
	$(BIN)/python -m benchmarks hub console

docs: dev  ## rewrite what is generated from the code (references, JSON Schema, TypeScript, custom resource), then build the site
	$(BIN)/python tools/cli_docs.py
	$(BIN)/python tools/message_docs.py
	$(BIN)/python tools/reference_docs.py
	$(BIN)/python tools/schema.py
	$(BIN)/python tools/crd.py
	$(TS) models
	$(BIN)/python tools/docs_site.py

site: dev  ## build docs/ as a site in build/docs; a warning or a broken link is an error
	@$(BIN)/python tools/docs_site.py

pictures: dev  ## follow the tutorial in a browser, and keep its screenshots as docs/pictures
	@$(BIN)/python tools/browser.py
	$(SUITE) tests/ui/test_tutorial.py --long $(PYTEST_ARGS)
	$(BIN)/python tools/pictures.py

translations: dev  ## bring the catalogs of messages up to date, and name what is not translated
	$(BIN)/python tools/translations.py

lock:  ## pin the newest allowed versions into requirements/
	@sh tools/lock.sh

dist: dev  ## wheel and sdist into dist/
	rm -rf build/lib*
	$(BIN)/python -m build

clean:  ## remove what make made: .venv, build, dist, caches
	@test ! -x $(BIN)/python || $(BIN)/python tools/running.py
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find tfcluster_magic tests tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	rm -rf tfcluster_magic/runtime/*.so tfcluster_magic/labextension
	rm -rf labextension/node_modules labextension/lib labextension/*.tsbuildinfo
