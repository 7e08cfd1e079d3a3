"""The files of examples/kubernetes, checked as the API server checks them."""

from __future__ import annotations

import copy
import re
from typing import Any

import jsonschema
import pytest
import yaml
from support.project import ROOT

from tfcluster_magic.kube.objects import crd, custom_resource
from tfcluster_magic.launch_checks.local import unsupported_options
from tfcluster_magic.spec import API_VERSION, KIND

EXAMPLES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))


def strict(node: Any) -> Any:
    """Return a schema that refuses unknown fields, as `kubectl apply` does."""
    if isinstance(node, dict):
        node = {key: strict(value) for key, value in node.items()}
        if "properties" in node and node.get("type") == "object":
            node.setdefault("additionalProperties", False)
        if node.pop("exclusiveMinimum", False):
            node["exclusiveMinimum"] = node.pop("minimum")
    return [strict(each) for each in node] if isinstance(node, list) else node


def test_there_are_eight() -> None:
    """There is an example for each way of giving a program and for each way of training: eight
    files.
    """
    assert len(EXAMPLES) == 8


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_the_resource(path: Any) -> None:
    """An example has the resource's version, passes its schema and its rules, and has no unknown
    fields.
    """
    thing = yaml.safe_load(path.read_text())
    assert (thing["apiVersion"], thing["kind"]) == (API_VERSION, KIND)
    schema = strict(copy.deepcopy(crd.object_schema()))
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.Draft202012Validator(schema).validate(thing)
    read = custom_resource.read(thing)
    assert read.status.warnings == ()
    assert read.metadata.run == 1


def test_the_shortest_has_fifteen_lines() -> None:
    """The shortest TFCluster that can run has fifteen lines of YAML."""
    text = (ROOT / "examples" / "kubernetes" / "inline.yaml").read_text()
    assert len(text.splitlines()) <= 15


def test_the_page_names_those_that_one_machine_refuses() -> None:
    """The page about the examples names the files that use features which exist only on
    Kubernetes.
    """
    page = (ROOT / "docs" / "how-to" / "kubernetes-files.md").read_text()
    said = page.partition("also run on one machine")[2].partition("only Kubernetes has")[0]
    refused = [
        path.name
        for path in EXAMPLES
        if unsupported_options(custom_resource.read(yaml.safe_load(path.read_text())).spec)
    ]
    assert refused == re.findall(r"`([\w-]+\.yaml)`", said)
