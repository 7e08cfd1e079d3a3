"""The Python of a launch's tasks: a kernel's Python, or the reason why it cannot be used."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.server.launches import HELLO, Post, ended, post, root, wrong
from tornado.httpclient import HTTPResponse

from tfcluster_magic.server import launch
from tfcluster_magic.server.service import Service
from tfcluster_magic.spec import Phase

__all__ = ["post", "root"]  # fixtures used by the tests below


async def test_what_a_form_needs_comes_with_the_options(
    jp_fetch: Callable[..., Awaitable[HTTPResponse]], service: Service
) -> None:
    """One response has the fields of a form, the kernels and the free resources."""
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
    """A kernel without a Python on this machine is listed with the reason, which the form shows."""
    kernel(jp_data_dir, "ruby", argv=["iruby"], language="ruby")
    kernel(jp_data_dir, "gone", argv=["/nowhere/bin/python3"])
    for name, why in (
        ("ruby", "this is not a Python kernel"),
        ("none", "there is no such kernel"),
    ):
        code, refused = await post("clusters", cell=HELLO, kernelspec=name)
        assert code == 422 and why in refused["detail"]
    _, told = await post("clusters/plan", cell=HELLO, kernelspec="gone")
    assert "there is no such file" in wrong(told)["python"]


@pytest.mark.parametrize(
    ("content", "why"),
    [("#!/bin/sh\nexit 1\n", "not a working Python"), (None, "not executable")],
)
async def test_a_python_that_cannot_run_tasks_is_told_before_they_start(
    post: Post, tmp_path: Path, content: str | None, why: str
) -> None:
    """Plan and launch refuse a wrong `--python` with the same reason."""
    file = tmp_path / "python3"
    file.write_text(content or "")
    file.chmod(0o755 if content else 0o644)
    options = {"python": str(file)}
    _, told = await post("clusters/plan", cell=HELLO, options=options)
    assert why in wrong(told)["python"]
    code, refused = await post("clusters", cell=HELLO, options=options)
    assert code == 409 and why in refused["detail"]


async def test_kernels_are_offered_where_tasks_can_run_with_them(
    jp_fetch: Callable[..., Awaitable[HTTPResponse]],
    post: Post,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If tasks run on other machines, no kernel of this server is offered."""
    monkeypatch.setattr(service.manager.backend, "is_here", False)
    offered = json.loads((await jp_fetch("tfcluster", "api", "options")).body)
    assert (offered["kernelspecs"], offered["defaults"]) == ([], {"kernelspec": None})
    _, told = await post("clusters/plan", cell=HELLO)
    assert "--python" not in told["line"]


def test_jupyters_own_python_is_not_named_twice() -> None:
    """A kernel with the server's own Python needs no `--python`, whatever its path is."""
    assert launch._is_server_python(sys.executable)
    assert not launch._is_server_python("/usr/bin/true")


@pytest.mark.parametrize(("provisioner", "remote"), [("somewhere-provisioner", False), ("", True)])
def test_a_kernel_of_another_machine_has_no_python_here(provisioner: str, remote: bool) -> None:
    """A kernel that a provisioner or a gateway starts is listed with the reason why it cannot be
    used, and is never used.
    """
    metadata = {"kernel_provisioner": {"provisioner_name": provisioner}} if provisioner else {}
    spec = {"argv": [sys.executable], "display_name": "Far", "metadata": metadata}
    far = launch._kernel_from_spec("far", spec, remote)
    assert far.python is None
    assert far.why is not None and "runs elsewhere" in far.why
