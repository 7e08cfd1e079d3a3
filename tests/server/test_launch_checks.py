"""The checks of a launch form, which launch nothing: problems, the number of workers that fits, and
the command line.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from support.server.launches import HELLO, Post, post, root, wrong

from tfcluster_magic.server.service import Service

__all__ = ["post", "root"]  # fixtures used by the tests below


async def test_a_plan_tells_every_problem_at_its_input(post: Post) -> None:
    """One response has the command line and every problem, each with the field at which the form
    shows it.
    """
    code, told = await post(
        "clusters/plan",
        program="project/tarin.py",
        name="Bad Name",
        kernelspec="fortran",
        arguments=["--epochs", "a b"],
        options={"workers": "many", "worker_memory": "3x", "grace": "soon"},
    )
    assert code == 200
    found = wrong(told)
    assert set(found) == {"program", "name", "kernelspec", "workers", "grace"} | (
        {"worker_memory"} & set(found)
    )
    assert "did you mean train.py?" in found["program"]
    assert told["line"] == (
        "%tfcluster launch --workers many --worker-memory 3x --grace soon --name 'Bad Name' "
        "tarin.py -- --epochs 'a b'"
    )


async def test_a_plan_says_what_would_fit(post: Post, service: Service) -> None:
    """If resources are short, the response has the number of workers that fits, even if no program
    is named.
    """
    free = service.manager.options().memory.free
    each = int(free / 4.5 / 2**20)
    said = {"workers": 6, "worker_memory": f"{each}Mi"}
    _, told = await post("clusters/plan", options=said)
    (problem,) = (p for p in told["problems"] if p["option"] == "workers")
    assert problem["fits"] in (3, 4, 5)
    assert f"{problem['fits']} workers of {each}Mi fit" in problem["message"]
    assert "name a file" in wrong(told)["program"]
    said["workers"] = problem["fits"]
    _, told = await post("clusters/plan", program="project/train.py", options=said)
    assert told["problems"] == []
    assert told["name"] == "train"


async def test_a_plan_tells_what_is_left_of_a_budget(
    post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remaining budget is shown before a launch; if no hours are left, the launch is
    refused.
    """
    file = tmp_path / "limits.json"
    monkeypatch.setenv("TFCLUSTER_LIMITS", str(file))
    file.write_text(json.dumps({"budget": {"cpuHours": 20}}))
    _, told = await post("clusters/plan", program="project/train.py")
    assert (told["told"], told["problems"]) == (["20 of 20 CPU·h left this week"], [])
    file.write_text(json.dumps({"budget": {"cpuHours": 0}}))
    _, told = await post("clusters/plan", program="project/train.py")
    assert [problem["field"] for problem in told["problems"]] == ["budget.cpuHours"]
    code, told = await post("clusters", program="project/train.py")
    assert code == 409
    assert "you have no CPU·h at all" in told["detail"]


async def test_a_plan_leaves_nothing(post: Post, root: Path, tmp_path: Path) -> None:
    """A plan stores no snapshot, even of a large program."""
    (root / "project" / "train.py").write_text(f"{HELLO}X = '{'x' * 100_000}'\n")
    code, told = await post("clusters/plan", program="project/train.py")
    assert (code, told["problems"]) == (200, [])
    for left in ("state", "tfcluster"):
        assert not os.path.exists(f"{tmp_path}/{left}")


async def test_a_plan_asks_no_url(post: Post) -> None:
    """While a user types a URL, nothing is fetched; an invalid URL is reported."""
    with socket.create_server(("127.0.0.1", 0)) as site:
        site.setblocking(False)
        _, told = await post(
            "clusters/plan", program=f"http://127.0.0.1:{site.getsockname()[1]}/train.py"
        )
        with pytest.raises(BlockingIOError):
            site.accept()
    assert told["problems"] == []
    assert told["name"] == "train"
    _, told = await post("clusters/plan", program="gopher://h/train.py")
    assert "gopher:// is not supported" in wrong(told)["program"]


async def test_a_name_that_runs_is_refused_by_plan_and_launch(post: Post) -> None:
    """The plan gives the reason with which the launch would be refused."""
    words = {"program": "sleep.py", "name": "digits", "options": {"workers": 1}}
    code, _ = await post("clusters", **words)
    assert code == 201
    _, told = await post("clusters/plan", **words)
    assert wrong(told).keys() == {"name"}
    code, refused = await post("clusters", **words)
    assert (code, refused["title"]) == (409, "NameTaken")
    assert "choose another name" in refused["detail"]
    assert "choose another name" in wrong(told)["name"]


async def test_what_a_program_asks_for_is_told(post: Post) -> None:
    """A plan shows which tasks the program requires, with the reason; the command line does not
    repeat them.
    """
    _, told = await post("clusters/plan", program="project/ps.py", arguments=["{x}"])
    assert told["line"] == "%tfcluster launch ps.py -- '{{x}}'"
    why, passed = told["inferred"]
    assert why.startswith("1 parameter server, because line 3 of ps.py takes --ps_hosts;")
    assert passed.startswith("--ps_hosts is passed, ")
    assert told["folder"] == "project"
    _, told = await post("clusters/plan", cell=HELLO, options={"workers": 3})
    assert told["line"] == "%%tfcluster launch --workers 3"
    assert told["folder"] == ""


BODIES: list[dict[str, object]] = [
    {"options": {"env": 5}},
    {"options": {"env": [["A"]], "workers": [1], "grace": {}, "memory": False}},
    {"options": {"workers": 10**300, "cpu": 10**300, "grace": 1e308}},
    {"options": {"workers": "9" * 5000}},
    {"options": {"file": "/etc/passwd", "within": 1, "folder": "/"}},
    {"options": {"self": 1}},
    {"options": {"function": "x", "workspace": "/", "args": [], "words": {}}},
    {"options": {"python": "\0", "mode": 7}},
    {"program": "\0", "cell": "x = 1"},
    {"cell": ""},
    {"program": "~"},
    {"arguments": ["\0"]},
    {"name": "x" * 10_000},
    {"program": "http://[/x.py", "sha256": "z"},
]


async def test_no_words_break_a_plan_or_launch_anything(post: Post, service: Service) -> None:
    """Any invalid request is refused with a message: a plan reports a problem, and a launch answers
    4xx.
    """
    for body in BODIES:
        code, told = await post("clusters/plan", **body)
        assert code == 200 and told["problems"], str(body)[:200]
        assert all(p["allowed"] for p in told["problems"]), str(body)[:200]
        code, refused = await post("clusters", **body)
        assert code in (409, 422) and refused["problems"], str(body)[:200]
        assert service.manager.list() == [], str(body)[:200]
