"""Projects in the file browser: their list, their launch, and their form."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.server.calls import Api
from support.server.launches import HELLO, Post, ended, post, root

from tfcluster_magic.server import app
from tfcluster_magic.server.service import Service

__all__ = ["post", "root"]  # fixtures of another module

FILE = """\
program: train.py
workers: 1
env: {BATCH: 010}
configurations:
  big: {workers: 3, max-duration: 1h}
"""


@pytest.fixture
def digits(root: Path) -> Path:
    """Create a project below the folder of the file browser."""
    folder = root / "work" / "digits"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(HELLO)
    (folder / "tfcluster.yaml").write_text(FILE)
    return folder


def check(name: str, data: Any) -> None:
    """Compare an answer with its schema."""
    described = app.openapi_document()
    schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
    Draft202012Validator(schema).validate(data)


async def test_projects_are_listed_with_their_last_run(
    digits: Path, api: Api, post: Post, service: Service
) -> None:
    """If a page launches the path of a project's folder, the run belongs to that project."""
    (digits.parent / "linked").symlink_to(digits)
    found = (await api("GET", "projects")).json
    check("ProjectList", found)
    assert found == {
        "complete": True,
        "projects": [
            {
                "path": "work/digits",
                "configurations": ["big"],
                "problems": [],
                "lastRun": None,
            }
        ],
    }
    code, run = await post("clusters", program="work/digits", config="big", options={"workers": 1})
    assert code == 201, run
    first = await asyncio.to_thread(ended, service, "digits-1")
    assert (first.spec.replicas.total, first.spec.env) == (1, {"BATCH": "010"})
    assert first.spec.lifecycle.max_duration == 3600
    (digits / "tfcluster.yaml").write_text("wrkers: 1\n")
    again = (await api("GET", "projects?refresh=1")).json
    (project,) = again["projects"]
    assert project["lastRun"] == "digits-1"
    assert "did you mean workers?" in project["problems"][0]


async def test_a_form_is_shown_what_comes_from_the_file(digits: Path, api: Api, post: Post) -> None:
    """Before a project is launched, the plan has the configurations and the values of the project's
    file, including secrets and variables, and the command line for this launch.
    """
    (digits / "tfcluster.yaml").write_text(FILE + "secret: [s3]\n")
    plan = (await api("POST", "clusters/plan", {"program": "work/digits"})).json
    check("Plan", plan)
    assert plan["name"] == "digits"
    assert plan["project"] == {
        "config": None,
        "configurations": ["big"],
        "values": {"program": "train.py", "workers": "1", "env": "BATCH=010", "secret": "s3"},
    }
    assert "secret: s3" in plan["inferred"][0]
    _code, big = await post("clusters/plan", program="work/digits", config="big")
    assert big["project"]["values"]["max_duration"] == "1h"
    assert big["line"].endswith("--config big digits")
    _code, wrong = await post("clusters/plan", program="work/digits", config="bgi")
    assert [problem["option"] for problem in wrong["problems"]] == ["config"]
    other = (await api("POST", "clusters/plan", {"program": "work/digits/train.py"})).json
    assert other["project"] is None


async def test_the_file_chooses_the_python_unless_the_person_does(
    digits: Path, api: Api, post: Post
) -> None:
    """Tasks get the Python that the project's file names, unless the user chose a kernel in the
    form.
    """
    (digits / "tfcluster.yaml").write_text("program: train.py\npython: /nonexistent/python\n")
    _code, plan = await post("clusters/plan", program="work/digits")
    assert "/nonexistent/python" in str(plan["problems"])
    _code, plan = await post("clusters/plan", program="work/digits", kernelspec="python3")
    assert "/nonexistent/python" not in str(plan["problems"])


async def test_a_run_of_a_project_is_launched_again_by_the_form(
    digits: Path, api: Api, post: Post, service: Service
) -> None:
    """The form of a run begins with the project's folder, the configuration and the further options
    of the run.
    """
    code, run = await post("clusters", program="work/digits", config="big", options={"workers": 2})
    assert code == 201, run
    first = await asyncio.to_thread(ended, service, "digits-1")
    told = (await api("GET", "clusters/digits/form")).json
    assert (told["launch"]["program"], told["launch"]["config"]) == ("work/digits", "big")
    code, run = await post("clusters", **told["launch"])
    assert code == 201, run
    again = await asyncio.to_thread(ended, service, "digits-2")
    assert again.spec == first.spec
