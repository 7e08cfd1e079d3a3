"""Refusals of Kubernetes tests that cannot run as requested: a single message says why and what to
do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kubenode.errors import NodeError
from support.kube.cluster_description import described
from support.project import ROOT

KUBENODE = [sys.executable, "-m", "kubenode"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
# The program drops its rights after the imports, because the new user might not be able to read the
# modules.
AS_NOBODY = """
import os, sys
from kubenode.__main__ import main
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
sys.argv[1:] = ["up"]
sys.exit(main())
"""
POOR = """
can = ["quota"]
[images]
busybox = "busybox:1"
notebook = "notebook:1"
"""


def ended(words: list[str], cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command and return its result."""
    clean = {k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "CLUSTER")}
    return subprocess.run(
        words,
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT / "tests" / "kube"), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def as_root() -> None:
    """Skip without root, which is needed to drop rights and to mount."""
    if os.geteuid() != 0:
        pytest.skip("only root can try what a node says to root")


@pytest.fixture
def powerless(as_root: None) -> list[str]:
    """Return the prefix of a command that runs as root without the right to create namespaces, as
    in a plain container.
    """
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for the clusters of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "clusters"))
    return tmp_path / "clusters"


def test_a_node_needs_root() -> None:
    """Without root, a node does not start; one message says so and what to do."""
    done = ended([sys.executable, "-c", AS_NOBODY])
    assert done.returncode == 1
    assert "needs root" in done.stderr
    assert "make test-kube KUBECONFIG=" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_needs_namespaces(powerless: list[str], state: Path) -> None:
    """If root cannot create namespaces, a node does not start, the message says so, and nothing is
    left.
    """
    done = ended([*powerless, *KUBENODE, "up"])
    assert done.returncode == 1
    assert "lets root make no namespaces (unshare: " in done.stderr
    assert "privileged" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(state.rglob("*"))


def test_a_node_needs_file_systems(as_root: None, state: Path, tmp_path: Path) -> None:
    """If the kernel lacks a file system, a node does not start, and the message names the file
    system.
    """
    (tmp_path / "filesystems").write_text("nodev\ttmpfs\n\text4\n\toverlay\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("unshare", "nsenter", "mount", "pivot_root"):
        (tools / name).symlink_to(shutil.which(name) or name)
    other = f'mount --bind {tmp_path}/filesystems /proc/filesystems; PATH={tools} exec "$@"'
    done = ended(["unshare", "--mount", "sh", "-ec", other, "sh", *KUBENODE, "up"])
    assert done.returncode == 1
    assert "This kernel has no fuse, xfs: load the module" in done.stderr
    assert "Traceback" not in done.stderr


def test_tests_on_our_node_end_where_it_cannot_start(powerless: list[str]) -> None:
    """If the node cannot start, its tests end with one message and an exit status; none is
    skipped.
    """
    done = ended([*powerless, *PYTEST, "tests/kube/test_pods.py"])
    assert done.returncode == 1
    assert "lets root make no namespaces" in done.stdout
    assert "Traceback" not in done.stdout
    assert "skipped" not in done.stdout


def test_ending_a_cluster_that_does_not_run(state: Path) -> None:
    """Ending a stopped cluster is not an error, even twice, and leaves no folder."""
    for _ in range(2):
        done = ended([*KUBENODE, "down"], TFCLUSTER_KUBE_NAME="never")
        assert (done.returncode, done.stderr) == (0, "")
    assert not [each for each in state.rglob("*") if each.is_dir() and each.name == "never"]


def test_a_persons_cluster_is_asked_only_what_it_can_do(tmp_path: Path) -> None:
    """Tests that a described cluster cannot run are deselected, and their names are printed; all
    other tests stay.
    """
    description = tmp_path / "mine.toml"
    description.write_text(POOR)
    env = {"KUBECONFIG": str(tmp_path / "config"), "CLUSTER": str(description)}
    files = [f"tests/kube/test_{name}.py" for name in ("pods", "quota", "network_policy")]
    done = ended([*PYTEST, "--collect-only", *files], **env)
    assert done.returncode == 0
    left_out = [line for line in done.stdout.splitlines() if line.startswith("LEFT OUT")]
    assert left_out
    for line in left_out:
        assert "test_network_policy.py" in line and "it needs network-policy" in line
        assert line.endswith("which this cluster's description lacks")
    assert "test_network_policy.py" not in "".join(set(done.stdout.splitlines()) - {*left_out})
    assert "test_pods.py::" in done.stdout
    assert "test_quota.py::" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('can = ["teleport"]', "can knows no teleport; it knows network-policy, rwx, "),
        ('can = ["rwx"]', "can has 'rwx', so storage-class must be there"),
        ("colour = 1", "the description knows no colour; it knows can, storage-class, "),
        ('can = "rwx"', "can is not a list or a table"),
        ("[images]\nrocket = 1", "[images] knows no rocket; it knows busybox, notebook"),
        ("", "[images] must name an image busybox"),
        ("can = [", "cannot be read: "),
    ],
)
def test_a_description_that_is_not_understood(tmp_path: Path, text: str, said: str) -> None:
    """A cluster description with a missing or an unknown word is refused, and the message names the
    word.
    """
    description = tmp_path / "mine.toml"
    description.write_text(text)
    with pytest.raises(NodeError) as refused:
        described(description)
    assert said in str(refused.value)


def test_a_description_needs_a_kubeconfig(tmp_path: Path) -> None:
    """If a cluster is described without a kubeconfig, the tests end with one message before the
    first test.
    """
    done = ended([*PYTEST, "tests/kube/test_pods.py"], CLUSTER=str(tmp_path / "mine.toml"))
    assert done.returncode == 1
    assert "CLUSTER is set, but KUBECONFIG is not" in done.stderr
    assert "Traceback" not in done.stderr
