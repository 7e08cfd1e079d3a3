#!/bin/sh
# Pin the newest versions that pyproject.toml allows, for every supported Python, into requirements/. Needs a package registry.
set -eu
cd "$(dirname "$0")/.."
uv=build/lock/bin/uv
[ -x "$uv" ] || { "${PYTHON:-python3}" -m venv build/lock && build/lock/bin/pip install --quiet uv; }

# With rfc3987-syntax, jsonschema makes 38 parsers at each start of Jupyter (2 s), for the format "iri", which nothing here uses.
pin() {  # arguments: the file, then those of `uv pip compile`
	file=requirements/$1
	shift
	{
		echo "# Exact pins made by \`make lock\` from pyproject.toml; install with --no-deps. See requirements/README.md."
		"$uv" pip compile --quiet --universal --python-version 3.10 --no-header --annotation-style line \
			--no-emit-package colorama --no-emit-package pywinpty \
			--no-emit-package rfc3987-syntax --no-emit-package lark \
			"$@" | sed '/^$/,$d' # drops uv's remarks, which follow after an empty line
	} > "$file.new"
	mv "$file.new" "$file"
}

lab="pyproject.toml --extra tensorflow --extra lab --group no-deps"
hub="--extra kubernetes --extra hub --extra hub-kubernetes"
pin run.txt $lab --extra hub
pin operator.txt pyproject.toml --extra kubernetes --constraint requirements/run.txt
pin dev.txt $lab $hub --extra test --extra dev --constraint requirements/run.txt --constraint requirements/operator.txt
pin hub.txt pyproject.toml $hub --constraint requirements/run.txt --constraint requirements/operator.txt
pin build.txt --group compiler
pin proxy.txt --group node
pin docs.txt --group docs
pin notebook.txt $lab --extra kubernetes --group singleuser --constraint requirements/run.txt --constraint requirements/hub.txt
wc -l requirements/*.txt
