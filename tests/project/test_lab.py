"""The workspace that `make run HUB=0` prepares, and the JupyterLab that it starts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.project import ROOT

LAB = ROOT / "tools" / "lab.py"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module tools/lab.py, with a folder of two examples."""
    spec = importlib.util.spec_from_file_location("lab", LAB)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    examples = tmp_path / "examples"
    (examples / "project").mkdir(parents=True)
    (examples / "train.py").write_text("first")
    (examples / "project" / "run.sh").write_text("run")
    monkeypatch.setattr(module, "EXAMPLES", examples)
    return module


def test_examples_come_with_their_folders(lab: ModuleType, tmp_path: Path) -> None:
    """A new workspace gets every example."""
    assert lab.copy_examples(tmp_path / "new") == []
    assert (tmp_path / "new" / "examples" / "project" / "run.sh").read_text() == "run"


def test_an_updated_example_replaces_an_unchanged_copy(lab: ModuleType, tmp_path: Path) -> None:
    """An unchanged copy of an example is replaced by its new version."""
    workspace = tmp_path / "workspace"
    lab.copy_examples(workspace)
    (lab.EXAMPLES / "train.py").write_text("second")

    assert lab.copy_examples(workspace) == []
    assert (workspace / "examples" / "train.py").read_text() == "second"


def test_a_changed_copy_is_kept(lab: ModuleType, tmp_path: Path) -> None:
    """A changed copy is kept and reported, and is kept at the next start, too."""
    workspace = tmp_path / "workspace"
    lab.copy_examples(workspace)
    (workspace / "examples" / "train.py").write_text("mine")
    (lab.EXAMPLES / "train.py").write_text("second")

    for _ in range(2):
        assert lab.copy_examples(workspace) == ["train.py"]
        assert (workspace / "examples" / "train.py").read_text() == "mine"


def test_a_file_that_was_there_before_is_kept(lab: ModuleType, tmp_path: Path) -> None:
    """If the user has a file with the name of an example, this file is kept."""
    own = tmp_path / "workspace" / "examples" / "train.py"
    own.parent.mkdir(parents=True)
    own.write_text("mine")

    assert lab.copy_examples(tmp_path / "workspace") == ["train.py"]
    assert own.read_text() == "mine"


def test_the_prepared_environment_knows_the_magic_and_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `%load_ext` in a notebook prints no warning, and JupyterLab does not ask whether it may
    fetch news.
    """
    monkeypatch.syspath_prepend(str(LAB.parent))
    spec = importlib.util.spec_from_file_location("install", LAB.with_name("install.py"))
    assert spec is not None and spec.loader is not None
    install = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(install)
    monkeypatch.setattr(install, "VENV", tmp_path)
    kernel = tmp_path / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text('{"argv": ["python"], "env": {}}')
    install.prepare_jupyter()

    config = tmp_path / "etc" / "ipython" / "ipython_config.py"
    cell = "%load_ext tfcluster_magic\n%tfcluster --version"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--colors=NoColor", f"--config={config}", "-c", cell],
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"%?tfcluster,? .*\d", done.stdout.strip()), done.stdout
    settings = json.loads((tmp_path / "share/jupyter/lab/settings/overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a JupyterLab that is started in a new workspace, as by `make run HUB=0`."""
    command = [sys.executable, str(LAB), "--workspace", str(tmp_path / "workspace"), "--port", "0"]
    env = {key: value for key, value in os.environ.items() if key != "DISPLAY"}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        yield running
        running.kill()


def test_the_printed_address_opens_jupyterlab_and_ctrl_c_ends_it(
    server: subprocess.Popen[str],
) -> None:
    """The address works with the token and is refused without it, and an interrupt ends all
    processes.
    """
    assert server.stdout is not None
    address = next(line.strip() for line in server.stdout if "?token=" in line)
    base, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)\?token=(\w+)", address).groups()  # type: ignore[union-attr]
    with urllib.request.urlopen(f"{base}api/kernelspecs?token={token}") as answer:
        assert "python3" in json.load(answer)["kernelspecs"]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{base}api/kernelspecs")

    server.send_signal(signal.SIGINT)

    assert "JupyterLab has ended" in server.stdout.read()
    assert server.wait() == 0
