"""Launches from a page: programs, cells, and refused requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.services.contents.manager import ContentsManager
from support.server.launches import HELLO, Post, ended, post, root
from tornado.httpclient import HTTPResponse

from tfcluster_magic.server.service import Service

__all__ = ["post", "root"]  # fixtures used by the tests below


async def test_a_program_of_the_file_browser_is_launched(post: Post, service: Service) -> None:
    """A program's path is relative to the server's root, and the program runs in its own folder."""
    code, run = await post("clusters", program="project/train.py", options={"workers": "1"})
    assert code == 201
    assert run["cluster"]["metadata"]["name"] == "train-1"
    assert run["ready"]["total"] == 1
    assert "files" not in run["cluster"]["spec"]["program"]
    ended(service, "train-1")
    (line,) = (line for line in service.manager.logs("train-1") if line is not None)
    assert line.text.endswith("/project")


async def test_a_cell_is_launched_in_the_folder_of_its_notebook(
    post: Post, service: Service
) -> None:
    """A cell runs in the folder of its notebook, under the name of the launch."""
    code, _ = await post(
        "clusters", cell=HELLO, folder="project", name="digits", options={"workers": 1}
    )
    assert code == 201
    run = ended(service, "digits")
    assert run.spec.program is not None
    assert run.spec.program.working_dir is not None
    assert run.spec.program.working_dir.endswith("/project")


async def test_a_rerun_keeps_the_snapshot(post: Post, service: Service) -> None:
    """A rerun applies the given changes and changes nothing else."""
    await post("clusters", program="project/train.py", name="digits", options={"workers": 1})
    ended(service, "digits")
    code, run = await post("clusters", "digits", "rerun", arguments=["x"], options={"grace": "5s"})
    assert code == 201
    assert run["cluster"]["metadata"]["name"] == "digits-2"
    assert run["cluster"]["spec"]["program"]["arguments"] == ["x"]
    assert run["cluster"]["spec"]["lifecycle"]["grace"] == 5
    code, told = await post("clusters", "nothing", "rerun")
    assert (code, told["title"]) == (404, "NotFound")


OUTSIDE = (
    "../secret.py",
    "project/../../secret.py",
    "/../secret.py",
    "{outside}/secret.py",
    "./..",
)


async def test_no_path_leads_out_of_the_file_browser(
    post: Post, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A path that leaves the root is refused in any spelling; the message has the folder where
    paths start.
    """
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.py").write_text(HELLO)
    for path in OUTSIDE:
        for route in ("clusters", "clusters/plan"):
            code, told = await post(route, program=path.format(outside=outside))
            problems = told["problems"]
            assert code == (422 if route == "clusters" else 200), path
            assert [p["field"] for p in problems] == ["program"], path
        code, told = await post("clusters", cell=HELLO, folder=path.format(outside=outside))
        assert code == 422, path


async def test_a_full_path_in_the_root_and_a_link_are_what_the_browser_shows(
    post: Post, root: Path, tmp_path: Path
) -> None:
    """A full path in the root, or a link that the file browser opens, can be launched, too."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.py").write_text(HELLO)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    for program in (f"{root}/project/train.py", "/project/train.py", "link/far.py", "shell"):
        _, told = await post("clusters/plan", program=program)
        assert told["problems"] == [], program
    assert told["line"] == "%tfcluster launch shell"


async def test_a_dead_backend_is_told(
    post: Post, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the backend does not answer, the launch ends soon with an error, not after two minutes."""
    release = threading.Event()
    monkeypatch.setattr(service.manager.backend, "list", lambda: release.wait(120) and [])
    try:
        code, told = await post("clusters", cell=HELLO)
        assert (code, told["title"]) == (503, "BackendUnavailable")
        assert not release.is_set()
    finally:
        release.set()


async def test_a_rerun_takes_options_only(post: Post, service: Service) -> None:
    """An unknown option is named in the refusal; a program's argument is not an option."""
    await post("clusters", cell=HELLO, name="digits", options={"workers": 1})
    ended(service, "digits")
    for key in ("self", "ref", "resume", "name", "function", "within", "wrokers"):
        code, refused = await post("clusters", "digits", "rerun", options={key: 1})
        assert code == 422, key
        (problem,) = refused["problems"]
        assert problem["field"] == key
        assert ("did you mean workers?" in problem["allowed"]) is (key == "wrokers")


async def test_a_cluster_may_be_called_plan(
    post: Post, service: Service, jp_fetch: Callable[..., Awaitable[HTTPResponse]]
) -> None:
    """The record of a cluster called `plan` is shown and removed like any other record."""
    await post("clusters", cell=HELLO, name="plan", options={"workers": 1})
    ended(service, "plan")
    path = ("tfcluster", "api", "clusters", "plan")
    told = json.loads((await jp_fetch(*path)).body)
    assert told["cluster"]["metadata"]["name"] == "plan-1"
    assert (await jp_fetch(*path, method="DELETE")).code in (202, 204)


class Elsewhere(ContentsManager):
    """Contents that are not files, such as those in a database."""


async def test_contents_that_are_no_files(
    post: Post, jp_serverapp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the file browser shows no files of this machine, none can be launched or opened."""
    monkeypatch.setattr(jp_serverapp, "contents_manager", Elsewhere())
    for body in ({"program": "etc/passwd"}, {"cell": HELLO, "folder": "etc"}):
        code, told = await post("clusters/plan", **body)
        assert code == 200
        assert "does not show files of this machine" in told["problems"][0]["allowed"]
    code, told = await post("clusters/plan", cell=HELLO, name="digits")
    assert (code, told["problems"], told["folder"]) == (200, [], "")
    code, refused = await post("tensorboards", folder="etc")
    assert (code, refused["title"]) == (403, "NotAllowed")


async def test_what_is_no_launch_is_refused(post: Post) -> None:
    """A request with unknown fields or wrong types is refused, and the refusal names them."""
    code, told = await post("clusters", programme="x.py", options=[])
    assert code == 422
    assert {p["field"].strip(".") for p in told["problems"]} == {"programme", "options"}
