"""The OpenAPI document, compared with the routes and their real responses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.project import ROOT
from support.server.calls import Api, Events, Launch
from support.server.routes import ways

from tfcluster_magic.server import app

Described = dict[str, Any]


@pytest.fixture
def described() -> Described:
    """Return the OpenAPI document."""
    return app.openapi_document()


def check(described: Described, name: str, data: Any) -> None:
    """Check that the data matches the schema `name` of the document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
    Draft202012Validator(schema).validate(data)


def test_it_names_every_route_and_no_other(described: Described, jp_web_app: Any) -> None:
    """The document has exactly the server's paths, each with its methods."""
    template = {path: re.sub(r"\{[^}]*\}", "{}", path) for path in described["paths"]}
    assert len(set(template.values())) == len(template)
    told = {
        (method.upper(), template[path])
        for path, item in described["paths"].items()
        for method in item
        if method != "parameters"
    }
    there = {
        (method, re.sub("digits-1|0123456789abcdef", "{}", path.partition("/api")[2]))
        for method, path, _ in ways(jp_web_app)
        if "/tfcluster/api/" in path
    }
    advice = "write a route's handler into ROUTES of its module, its path into server/openapi.yaml"
    assert told == there, advice


def test_the_page_of_the_api_has_a_row_for_every_route(described: Described) -> None:
    """docs/reference/api.md has every route, and no other. The name `plan` is the only literal
    where another route has a variable, and its description names that route.
    """
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| (.*?`) \|", page.partition("## Who may call")[0], re.MULTILINE)
    listed = {route for row in rows for route in routes_of(row)}
    there = set()
    for path, item in described["paths"].items():
        for method in item.keys() - {"parameters"}:
            same = re.search(r", as `(.*)` does$", item[method]["summary"])
            there.add((method.upper(), same[1] if same else path))
    assert listed == there, "write its row into the table of docs/reference/api.md"


def routes_of(row: str) -> Iterator[tuple[str, str]]:
    """Yield the methods and paths in the first cell of a row, such as "`GET` `POST /schedules`".
    `…` stands for the path before it without its last part.
    """
    methods: list[str] = []
    path = ""
    for word in re.findall(r"`(.*?)`", row):
        method, _, rest = word.rpartition(" ")
        if word.isupper():
            methods.append(word)
        else:
            if method:
                methods = [*methods, method] if not path else [method]
            rest = rest.partition("?")[0]
            path = rest.replace("…", path.rpartition("/")[0])
            yield from ((each, path) for each in methods)


def test_all_that_it_refers_to_is_there(described: Described) -> None:
    """Every reference resolves, and each schema is valid."""
    for ref in re.findall(r'"#/([^"]+)"', json.dumps(described)):
        at: Any = described
        for part in ref.split("/"):
            assert part in at, (
                f"#/{ref} is missing: describe it in server/openapi.yaml, or, if it is a model, "
                "add it to _OTHER_MODELS of server/app.py"
            )
            at = at[part]
    for schema in described["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_parameter_of_a_path_is_described(described: Described) -> None:
    """The document describes each parameter of a path, such as `{ref}` and `{id}`."""
    for path, item in described["paths"].items():
        named = {
            p.get("name") or described["components"]["parameters"][p["$ref"].split("/")[-1]]["name"]
            for p in item.get("parameters", ())
        }
        assert named == set(re.findall(r"\{(\w+)\}", path))


async def test_answers_are_as_described(
    described: Described, api: Api, ended: Launch, page: Any
) -> None:
    """Real responses of each kind fit their schemas: lists, runs, logs, options,
    problems, events.
    """
    events: Events = await page()
    await ended("print('hello')", workers=2, ps=1, reclaim_after="0s")
    event = await events.phase("Succeeded")
    check(described, "Run", event["run"])
    check(described, "RunList", (await api("GET", "clusters")).json)
    check(described, "RunDetails", (await api("GET", "clusters/digits")).json)
    check(described, "FilledForm", (await api("GET", "clusters/digits/form")).json)
    check(described, "Run", (await api("POST", "clusters/digits/stop", {})).json)
    check(described, "Offer", (await api("GET", "options")).json)
    check(described, "TaskLists", (await api("GET", "tasks?run=digits-1")).json)
    wish = {"cell": "pass", "options": {"workers": 100_000}}
    planned = await api("POST", "clusters/plan", wish)
    assert planned.json["problems"]
    check(described, "LaunchBody", wish)
    check(described, "Plan", planned.json)
    check(described, "Problem", (await api("GET", "clusters/nobody")).json)
    refused = await api("POST", "clusters", {"cell": "pass", "options": {"workers": -1}})
    assert refused.json["problems"]
    check(described, "Problem", refused.json)
    items = (await api("GET", "clusters/digits/logs")).text.splitlines()
    assert [*map(json.loads, items)][-1] == {"end": True}
    for item in items:
        check(described, "LogItem", json.loads(item))
    assert (await api("GET", "openapi.json")).json == json.loads(json.dumps(described))


async def test_a_wrong_answer_would_be_noticed(described: Described) -> None:
    """The schemas are strict enough to reject data that is not a run."""
    for wrong in ({}, {"cluster": {}, "ready": {}, "progress": None, "notes": []}):
        with pytest.raises(Exception, match="required"):
            check(described, "Run", wrong)
