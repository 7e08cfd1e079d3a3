"""The cluster of these tests: a user's cluster, or the project's own node, which is started for
them.

On the own node every test runs or fails. On a user's cluster, tests that need a feature missing
from its description are deselected, and the summary lists them. Several processes may share the
cluster (pytest-xdist). While a file that would disturb others runs, no other file uses the cluster.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubenode import build, sandbox
from kubenode.cluster import OPTIONS, Cluster
from kubenode.commands import say
from kubenode.errors import NodeError
from support.kube import cluster_description as clusters
from support.kube.cluster_description import Description
from support.kube.hub import hub
from support.kube.kubectl import Kubectl
from support.kube.operator import installed, new_tenant, tenant
from support.kube.turns import CLUSTER, HUB, OPERATOR, Turn, folder_of_all, is_worker
from support.kube.under_test import UnderTest
from support.ui.browser import pytest_runtest_makereport

# Imported fixtures and hooks, which pytest finds by their names.
__all__ = ["hub", "installed", "new_tenant", "pytest_runtest_makereport", "tenant"]

SECONDS = 900  # timeout of one test, without starting and building the cluster
THEIRS = pytest.StashKey[tuple[str, Description] | None]()
LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()
RAN_BEFORE = pytest.StashKey[bool]()
PROGRAMS = {"state-metrics": "kube-state-metrics"}
"""Features of a cluster, each with the program on PATH that it needs. The project does not build
these programs, so without one, the tests that need its feature are deselected.
"""
ORDER = (
    *("recovery", "chaos", "node", "upgrade", "two_nodes", "server_loss"),
    *("hub_nodes", "scale", "enforcement", "lab"),
    *("backend_contract", "hub", "operator", "explain", "user_journey", "images", "tenancy"),
    *("hub_faults", "console", "console_archive", "render", "isolation", "attempts"),
    *("modes", "notebook", "admission", "backend", "storage", "security"),
)
"""The files that run first, so that two processes end at about the same time: first the files that
must run alone, then the longest files.
"""


def pytest_configure(config: pytest.Config) -> None:
    """Read the features of the cluster before the tests are selected."""
    config.addinivalue_line(
        "markers",
        f"needs(*abilities): what a cluster must be able to do: {', '.join(clusters.ABILITIES)}",
    )
    config.addinivalue_line("markers", "alone: this file would disturb others on its cluster")
    # A node may outlive the process that starts it, so Python's warning about this is ignored.
    config.addinivalue_line(
        "filterwarnings", r"ignore:subprocess \d+ is still running:ResourceWarning"
    )
    with _one_message():
        config.stash[THEIRS] = clusters.chosen()
        if not config.stash[THEIRS]:
            config.stash[RAN_BEFORE] = bool(Cluster().nodes())


def pytest_report_header(config: pytest.Config) -> str:
    """Report which cluster is tested."""
    theirs = config.stash[THEIRS]
    return (
        f"cluster: {theirs[0]}"
        if theirs
        else f"cluster: the project's own node, {Cluster().name!r}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that a user's cluster cannot run, and set the timeout of each test without a
    timeout of its own.
    """
    theirs = config.stash[THEIRS]
    limit = SECONDS + 30 * (config.getoption("chaos_steps") or 0)
    for key, name in ((CLUSTER, "cluster"), (OPERATOR, "operator"), (HUB, "hub")):
        config.stash[key] = Turn(folder_of_all(config) / f"{name}.turn")
    chosen, left_out = [], {}
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            chosen.append(item)  # a test of another folder named on the same command line
            continue
        needs = _needs(item)
        if unknown := needs - clusters.ABILITIES.keys() - PROGRAMS.keys():
            raise pytest.UsageError(
                f"{item.nodeid} needs {', '.join(unknown)}: no such word in cluster_description.py"
            )
        lacking = needs - theirs[1].can if theirs else needs & OPTIONS.keys() - asked_for()
        lacking = (lacking - PROGRAMS.keys()) | {
            each for each in needs & PROGRAMS.keys() if not shutil.which(PROGRAMS[each])
        }
        if lacking:
            left_out[item.nodeid] = sorted(lacking)
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit, func_only=True))
        chosen.append(item)
    config.stash[LEFT_OUT] = left_out
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = sorted(chosen, key=_rank)  # sorting is stable, so the order within a file stays


def _rank(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_")
    return ORDER.index(name) if name in ORDER else len(ORDER)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool | None, bool | None]:
    """Lock the cluster while a file of tests runs, and the operator while one test runs."""
    cluster, operator = item.config.stash[CLUSTER], item.config.stash[OPERATOR]
    hub_turn = item.config.stash[HUB]
    names = getattr(item, "fixturenames", ())
    if "cluster" in names and not cluster.held:
        (cluster.alone if _wants_it_alone(item) else cluster.share)()
    if "installed" in names:
        operator.share()
    if "hub" in names:
        hub_turn.share()
    try:
        return (yield)
    finally:
        operator.give()
        hub_turn.give()
        goes_on = nextitem is not None and nextitem.path == item.path
        if not goes_on and not (_wants_it_alone(item) and _wants_it_alone(nextitem)):
            cluster.give()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Make sure that every server is running, because one may have ended after an earlier test
    disturbed it.
    """
    if item.config.stash[CLUSTER].held and not item.config.stash[THEIRS]:
        Cluster().revive()


def _wants_it_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """After all processes have ended, leave the own cluster running only if it ran before."""
    if is_worker(session.config):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})
    yield
    if is_worker(session.config) or session.config.stash.get(RAN_BEFORE, True):
        return
    try:
        if (own := Cluster()).state.exists():
            own.down()
    except NodeError as error:
        say(str(error))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the deselected tests of a worker process, because the main process prints the
    summary.
    """
    left_out = getattr(node, "workeroutput", {}).get("left_out", {})
    node.config.stash.setdefault(LEFT_OUT, {}).update(left_out)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List each deselected test with the reason."""
    theirs = config.stash[THEIRS]
    reason = "this cluster's description lacks" if theirs else "WITH does not ask for"
    for test, lacking in config.stash.get(LEFT_OUT, {}).items():
        terminalreporter.write_line(
            f"LEFT OUT {test}: it needs {', '.join(lacking)}, which {reason}"
        )


def _needs(item: pytest.Item) -> set[str]:
    """Return the features that a test needs."""
    return {word for mark in item.iter_markers("needs") for word in mark.args}


def asked_for() -> set[str]:
    """Return the options of the own node, as in WITH=kwok,volcano."""
    words = {word for word in os.environ.get("WITH", "").split(",") if word}
    if unknown := words - OPTIONS.keys():
        raise pytest.UsageError(f"WITH knows {', '.join(OPTIONS)}, not {', '.join(unknown)}")
    return words


@contextmanager
def _one_message() -> Iterator[None]:
    try:
        yield
    except NodeError as error:
        if "PYTEST_XDIST_WORKER" in os.environ:
            say(str(error))  # because pytest-xdist reports that this process ended, but not why
        pytest.exit(str(error), returncode=1)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path) -> Path:
    """Override the fixture of tests/conftest.py, which changes HOME and looks for leftover
    processes. Here HOME stays the user's, because the node's cache is below it; and a cluster
    reports its own leftovers when it is removed.
    """
    return tmp_path


@pytest.fixture(scope="session")
def machine() -> None:
    """Check that this machine can have nodes; otherwise end the run with the reason."""
    with _one_message():
        sandbox.check_machine()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> UnderTest:
    """The cluster under test. The first process that needs it starts the own node."""
    theirs = request.config.stash[THEIRS]
    if theirs:
        program = shutil.which("kubectl")
        if not program:
            pytest.exit(
                "kubectl is not on PATH: install it, in a version near the cluster's", returncode=1
            )
        return UnderTest(Kubectl(Path(program), theirs[0]), theirs[1], None)
    own = Cluster()
    capture = request.config.pluginmanager.getplugin("capturemanager")
    # Show progress, because the first start builds for half an hour.
    with _one_message(), capture.global_and_fixture_disabled():
        own.up(
            second=any("two-nodes" in _needs(item) for item in request.session.items),
            options=sorted(asked_for()),
        )
        description = clusters.described(own.state / "cluster.toml")
        kubectl = Kubectl(build.binary("kubectl"), str(own.kubeconfig))
    return UnderTest(kubectl, description, own)


@pytest.fixture(autouse=True)
def _is_able(request: pytest.FixtureRequest) -> None:
    """Check that the own node has the features that a test needs."""
    needs = _needs(request.node)
    if needs and "cluster" in request.fixturenames:
        can = request.getfixturevalue("cluster").description.can
        lacking = needs - PROGRAMS.keys() - can
        assert not lacking, f"the project's own node lacks {', '.join(sorted(lacking))}"


@pytest.fixture
def new_namespace(cluster: UnderTest) -> Iterator[Callable[[], Kubectl]]:
    """Return a function that creates namespaces under Pod Security "restricted"; delete them at the
    end.
    """
    made: list[str] = []

    def make() -> Kubectl:
        name = f"test-{uuid.uuid4().hex[:8]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "tfcluster-tests": "true"}
        metadata = {"name": name, "labels": labels}
        cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        made.append(name)
        inside = cluster.kubectl.within(name)
        inside.wait_until_furnished()
        return inside

    yield make
    if made:
        cluster.kubectl("delete", "namespace", *made, "--wait=false")


@pytest.fixture
def kube(new_namespace: Callable[[], Kubectl]) -> Kubectl:
    """A new namespace for the test, and kubectl in it."""
    return new_namespace()
