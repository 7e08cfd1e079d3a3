"""Launch, rerun and plan by REST, in a real Jupyter server."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.services.contents.manager import ContentsManager
from tornado.httpclient import HTTPResponse

from tfcluster_magic.models import Phase, TFCluster
from tfcluster_magic.server import kernelspecs
from tfcluster_magic.server.service import Service

HELLO = "import os\nprint('hello from', os.environ['TFCLUSTER_TASK'], os.getcwd(), flush=True)\n"
SLEEP = "import time\ntime.sleep(600)\n"
Post = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def root(jp_root_dir: Path) -> Path:
    """The folder of the file browser, with programs."""
    (jp_root_dir / "project").mkdir()
    (jp_root_dir / "project" / "train.py").write_text(HELLO)
    (jp_root_dir / "project" / "ps.py").write_text("import sys\nprint('--ps_hosts', sys.argv)\n")
    (jp_root_dir / "sleep.py").write_text(SLEEP)
    (jp_root_dir / "shell").mkdir()
    (jp_root_dir / "shell" / "run.sh").write_text("echo hello\n")
    return jp_root_dir


@pytest.fixture
def post(jp_fetch: Callable[..., Awaitable[HTTPResponse]], service: Service, root: Path) -> Post:
    """Posts JSON; gives the status and the JSON of the answer."""

    async def send(*path: str, **body: object) -> tuple[int, Any]:
        answer = await jp_fetch(
            "tfcluster", "api", *path, method="POST", body=json.dumps(body), raise_error=False
        )
        return answer.code, json.loads(answer.body)

    return send


def ended(service: Service, name: str) -> TFCluster:
    return service.manager.wait(name, 60)


def wrong(told: Any) -> dict[str, str]:
    """The problems of a plan by the input that they are about."""
    return {p["option"]: p["allowed"] for p in told["problems"]}


async def test_a_program_of_the_file_browser_is_launched(post: Post, service: Service) -> None:
    """A path begins in the server's root, and the program runs in its own folder."""
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
    """A cell finds the modules beside its notebook, and says its name in its log."""
    code, _ = await post(
        "clusters", cell=HELLO, folder="project", name="digits", options={"workers": 1}
    )
    assert code == 201
    run = ended(service, "digits")
    assert run.spec.program is not None
    assert run.spec.program.working_dir is not None
    assert run.spec.program.working_dir.endswith("/project")


async def test_a_rerun_keeps_the_snapshot(post: Post, service: Service) -> None:
    """A run is launched again with what is changed, and with nothing else changed."""
    await post("clusters", program="project/train.py", name="digits", options={"workers": 1})
    ended(service, "digits")
    code, run = await post("clusters", "digits", "rerun", arguments=["x"], options={"grace": "5s"})
    assert code == 201
    assert run["cluster"]["metadata"]["name"] == "digits-2"
    assert run["cluster"]["spec"]["program"]["arguments"] == ["x"]
    assert run["cluster"]["spec"]["lifecycle"]["grace"] == 5
    code, told = await post("clusters", "nothing", "rerun")
    assert (code, told["title"]) == (404, "NotFound")


async def test_a_plan_tells_every_problem_at_its_input(post: Post) -> None:
    """One answer has all that is wrong, each where the form shows it, and the line all the same."""
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
    """Where room is short, the number that fits comes with the sentence, also without a program."""
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
    """Before a launch, and without standing against it; with none left it does."""
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
    """A plan stores no snapshot, not even of a large program."""
    (root / "project" / "train.py").write_text(f"{HELLO}X = '{'x' * 100_000}'\n")
    code, told = await post("clusters/plan", program="project/train.py")
    assert (code, told["problems"]) == (200, [])
    for left in ("state", "tfcluster"):
        assert not os.path.exists(f"{tmp_path}/{left}")


async def test_a_plan_asks_no_url(post: Post) -> None:
    """While a person types an address, nothing is fetched; what is no address is told."""
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
    """The plan says in the same words what the launch would be refused for."""
    words = {"program": "sleep.py", "name": "digits", "options": {"workers": 1}}
    code, _ = await post("clusters", **words)
    assert code == 201
    _, told = await post("clusters/plan", **words)
    assert wrong(told).keys() == {"name"}
    code, refused = await post("clusters", **words)
    assert (code, refused["title"]) == (409, "NameTaken")
    assert "choose another name" in refused["detail"]
    assert "choose another name" in wrong(told)["name"]


@pytest.mark.parametrize(
    "path",
    ["../secret.py", "project/../../secret.py", "/../secret.py", "{outside}/secret.py", "./.."],
)
async def test_no_path_leads_out_of_the_file_browser(
    post: Post, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    """Whatever its spelling, a path that leaves the root is refused, and told where paths begin."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.py").write_text(HELLO)
    for route in ("clusters", "clusters/plan"):
        code, told = await post(route, program=path.format(outside=outside))
        problems = told["problems"]
        assert code == (422 if route == "clusters" else 200)
        assert [p["field"] for p in problems] == ["program"]
    code, told = await post("clusters", cell=HELLO, folder=path.format(outside=outside))
    assert code == 422


async def test_a_full_path_in_the_root_and_a_link_are_what_the_browser_shows(
    post: Post, root: Path, tmp_path: Path
) -> None:
    """A link that the file browser opens is launched, too: the person put it there."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.py").write_text(HELLO)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    for program in (f"{root}/project/train.py", "/project/train.py", "link/far.py", "shell"):
        _, told = await post("clusters/plan", program=program)
        assert told["problems"] == [], program
    assert told["line"] == "%tfcluster launch shell"


async def test_whether_a_program_speaks_of_parameter_servers_counts(post: Post) -> None:
    """The line stays short: what the program asks for by itself is not in it."""
    _, told = await post("clusters/plan", program="project/ps.py", arguments=["{x}"])
    assert told["line"] == "%tfcluster launch ps.py -- '{{x}}'"
    assert told["folder"] == "project"
    _, told = await post("clusters/plan", cell=HELLO, options={"workers": 3})
    assert told["line"] == "%%tfcluster launch --workers 3"
    assert told["folder"] == ""


async def test_what_a_form_needs_comes_with_the_options(
    jp_fetch: Callable[..., Awaitable[HTTPResponse]], service: Service
) -> None:
    """Fields, kernels and what is free come in one answer."""
    answer = json.loads((await jp_fetch("tfcluster", "api", "options")).body)
    assert {"mode", "workers", "max_duration"} <= {field["key"] for field in answer["form"]}
    assert answer["options"]["memory"]["free"] > 0
    default = answer["defaults"]["kernelspec"]
    (kernel,) = (k for k in answer["kernelspecs"] if k["name"] == default)
    assert kernel["python"] and kernel["why"] is None


def kernel(jp_data_dir: Path, name: str, **spec: object) -> None:
    folder = jp_data_dir / "kernels" / name
    folder.mkdir(parents=True)
    given = {"argv": [], "display_name": name.upper(), "language": "python", **spec}
    (folder / "kernel.json").write_text(json.dumps(given))


async def test_a_kernel_names_the_python_of_the_tasks(
    post: Post, service: Service, jp_data_dir: Path, tmp_path: Path
) -> None:
    """Tasks run with the Python of the chosen kernel, and a rerun keeps it."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\nexport OWN_PYTHON=yes\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    kernel(jp_data_dir, "other", argv=[str(python), "-m", "ipykernel_launcher"])
    text = "import os\nprint(os.environ['OWN_PYTHON'])\n"
    said = {"cell": text, "kernelspec": "other", "name": "digits", "options": {"workers": 1}}
    _, told = await post("clusters/plan", **said)
    assert told["problems"] == []
    assert f"--python {python}" in told["line"]
    code, _ = await post("clusters", **said)
    assert code == 201
    assert ended(service, "digits").status.phase is Phase.SUCCEEDED
    code, again = await post("clusters", "digits", "rerun")
    assert (code, again["cluster"]["spec"]["interpreter"]) == (201, str(python))


async def test_a_kernel_that_runs_elsewhere_is_refused(post: Post, jp_data_dir: Path) -> None:
    """A kernel without a Python on this machine is named with the reason; the form shows it so."""
    kernel(jp_data_dir, "ruby", argv=["iruby"], language="ruby")
    kernel(jp_data_dir, "gone", argv=["/nowhere/bin/python3"])
    for name, why in (
        ("ruby", "not started by a Python"),
        ("none", "there is no such kernel"),
    ):
        code, refused = await post("clusters", cell=HELLO, kernelspec=name)
        assert code == 422 and why in refused["detail"]
    _, told = await post("clusters/plan", cell=HELLO, kernelspec="gone")
    assert "there is no such file" in wrong(told)["python"]


@pytest.mark.parametrize(
    ("content", "why"),
    [("#!/bin/sh\nexit 1\n", "does not start as a Python"), (None, "not executable")],
)
async def test_a_python_that_cannot_run_tasks_is_told_before_they_start(
    post: Post, tmp_path: Path, content: str | None, why: str
) -> None:
    """A wrong `--python` is refused with the reason, by plan and launch alike."""
    file = tmp_path / "python3"
    file.write_text(content or "")
    file.chmod(0o755 if content else 0o644)
    options = {"python": str(file)}
    _, told = await post("clusters/plan", cell=HELLO, options=options)
    assert why in wrong(told)["python"]
    code, refused = await post("clusters", cell=HELLO, options=options)
    assert code == 409 and why in refused["detail"]


async def test_a_dead_backend_is_told(
    post: Post, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch does not wait two minutes for a backend that answers nobody."""
    release = threading.Event()
    monkeypatch.setattr(service.manager.backend, "list", lambda: release.wait(120) and [])
    try:
        code, told = await post("clusters", cell=HELLO)
        assert (code, told["title"]) == (503, "BackendUnavailable")
        assert not release.is_set()
    finally:
        release.set()


@pytest.mark.parametrize(
    "body",
    [
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
        {"arguments": ["\0", "\ud800"]},
        {"name": "x" * 10_000},
        {"program": "http://[/x.py", "sha256": "z"},
    ],
)
async def test_no_words_break_a_plan_or_launch_anything(
    post: Post, service: Service, body: dict[str, object]
) -> None:
    """Whatever is asked for is refused in words: problems of a plan, a 4xx of a launch."""
    code, told = await post("clusters/plan", **body)
    assert code == 200 and told["problems"] and all(p["allowed"] for p in told["problems"])
    code, refused = await post("clusters", **body)
    assert code in (409, 422) and refused["problems"]
    assert service.manager.list() == []


@pytest.mark.parametrize("key", ["self", "ref", "resume", "name", "function", "within", "wrokers"])
async def test_a_rerun_takes_options_only(post: Post, service: Service, key: str) -> None:
    """What is no option is named; a word of the program's own is none."""
    await post("clusters", cell=HELLO, name="digits", options={"workers": 1})
    ended(service, "digits")
    code, refused = await post("clusters", "digits", "rerun", options={key: 1})
    assert code == 422
    (problem,) = refused["problems"]
    assert problem["field"] == key
    assert ("did you mean workers?" in problem["allowed"]) is (key == "wrokers")


async def test_a_cluster_may_be_called_plan(
    post: Post, service: Service, jp_fetch: Callable[..., Awaitable[HTTPResponse]]
) -> None:
    """Its record is shown and removed like any other."""
    await post("clusters", cell=HELLO, name="plan", options={"workers": 1})
    ended(service, "plan")
    path = ("tfcluster", "api", "clusters", "plan")
    told = json.loads((await jp_fetch(*path)).body)
    assert told["cluster"]["metadata"]["name"] == "plan-1"
    assert (await jp_fetch(*path, method="DELETE")).code in (202, 204)


class Elsewhere(ContentsManager):
    """Contents that are no files: those of a database, say."""


async def test_contents_that_are_no_files(
    post: Post, jp_serverapp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file browser shows no files of this machine, none of them is launched or shown."""
    monkeypatch.setattr(jp_serverapp, "contents_manager", Elsewhere())
    for body in ({"program": "etc/passwd"}, {"cell": HELLO, "folder": "etc"}):
        code, told = await post("clusters/plan", **body)
        assert code == 200
        assert "no files of this machine" in told["problems"][0]["allowed"]
    code, told = await post("clusters/plan", cell=HELLO, name="digits")
    assert (code, told["problems"], told["folder"]) == (200, [], "")
    code, refused = await post("tensorboards", folder="etc")
    assert (code, refused["title"]) == (403, "NotAllowed")


async def test_kernels_are_offered_where_tasks_can_run_with_them(
    jp_fetch: Callable[..., Awaitable[HTTPResponse]],
    post: Post,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backend on other machines has none of this server's Pythons."""
    monkeypatch.setattr(service.manager.backend, "is_here", False)
    offered = json.loads((await jp_fetch("tfcluster", "api", "options")).body)
    assert (offered["kernelspecs"], offered["defaults"]) == ([], {"kernelspec": None})
    _, told = await post("clusters/plan", cell=HELLO)
    assert "--python" not in told["line"]


async def test_what_is_no_launch_is_refused(post: Post) -> None:
    """Unknown fields and wrong types are named."""
    code, told = await post("clusters", programme="x.py", options=[])
    assert code == 422
    assert {p["field"].strip(".") for p in told["problems"]} == {"programme", "options"}


def test_jupyters_own_python_is_not_named_twice() -> None:
    """A kernel with the server's Python asks for no other, by whatever name it is called."""
    assert kernelspecs._is_ours(sys.executable)
    assert not kernelspecs._is_ours("/usr/bin/true")


@pytest.mark.parametrize(("provisioner", "remote"), [("somewhere-provisioner", False), ("", True)])
def test_a_kernel_of_another_machine_has_no_python_here(provisioner: str, remote: bool) -> None:
    """A kernel that a provisioner or a gateway starts is shown with the reason, never used."""
    metadata = {"kernel_provisioner": {"provisioner_name": provisioner}} if provisioner else {}
    spec = {"argv": [sys.executable], "display_name": "Far", "metadata": metadata}
    far = kernelspecs._kernel("far", spec, remote)
    assert far.python is None
    assert far.why is not None and "runs elsewhere" in far.why
