"""The contract of all backends, checked on Kubernetes.

tests/unit/backends/test_contract*.py are its tests. These files are copied unchanged into several
notebook pods with a user's account and volumes, each in its own namespace. Each test of the files
is reported here by its name.
"""

from __future__ import annotations

import ast
import importlib.metadata
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubenode.errors import NodeError
from kubenode.paths import ROOT
from support.kube import tenants
from support.kube.operator import Tenant

pytestmark = pytest.mark.needs("rwx", "quota")

SUITE = {
    node.name: file.relative_to(ROOT)
    for file in sorted((ROOT / "tests" / "unit" / "backends").glob("test_contract*.py"))
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}
"""The path of each test of the suite, by its name."""
NAMES = [*SUITE]
AT_ONCE = 4
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest-timeout")
QUOTA = {"requests.cpu": "1300m", "requests.memory": "6Gi"}
"""With this quota, the free resources of a namespace do not depend on the other namespaces."""


@dataclass(frozen=True)
class Verdict:
    """The result of a test of the suite in its pod."""

    passed: bool
    words: str


@pytest.fixture(scope="module")
def verdicts(new_tenant: Callable[[], Tenant]) -> Mapping[str, Verdict]:
    """The result of every test of the suite by its name. The suite runs once, in a few pods in
    parallel.
    """
    shares = [NAMES[at::AT_ONCE] for at in range(AT_ONCE)]
    homes = [new_tenant() for _share in shares]
    found: dict[str, Verdict] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for told in pool.map(_try, homes, shares):
            found |= told
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_holds(verdicts: Mapping[str, Verdict], name: str) -> None:
    """On Kubernetes each test of the suite passes, in a notebook pod with a user's rights."""
    assert verdicts[name].passed, verdicts[name].words


def _try(tenant: Tenant, names: list[str]) -> dict[str, Verdict]:
    """Run these tests in a tenant's notebook pod; return their results."""
    kube = tenant.kubectl
    tenants.move_in(kube)
    kube.apply(
        tenants.notebook(tenant.image),
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "tasks"},
            "spec": {"hard": QUOTA},
        },
    )
    kube.running(tenants.POD)
    tenants.carry(kube, tenants.POD, [tenants.our_package(), *_suite()])
    words = " ".join(f"{SUITE[name]}::{name}" for name in names)
    report = "/tmp/report.xml"
    command = (
        f"cd {tenants.CARRIED} && PYTHONPATH=.:packages python -m pytest -q -p no:cacheprovider "
        f"--junitxml={report} --timeout=120 --timeout-method=signal {words}"
    )
    try:
        said = kube.exec(tenants.POD, "sh", "-c", command, seconds=600)
    except NodeError as error:  # a test failed; the report says which one
        said = str(error)
    try:
        report = kube.exec(tenants.POD, "cat", report)
    except NodeError as error:
        raise AssertionError(f"the suite did not run: {said}") from error
    log = tenant.operator.log()[-3000:]
    return _verdicts(report, log)


def _verdicts(report: str, log: str) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for case in ET.fromstring(report).iter("testcase"):
        failed = [part for part in case if part.tag in ("failure", "error", "skipped")]
        words = "\n".join(f"{part.get('message')}\n{part.text}" for part in failed)
        name = str(case.get("name")).partition("[")[0]
        before = found.get(name, Verdict(True, ""))
        words = f"{before.words}\n{words}\nThe operator said:\n{log}"
        found[name] = Verdict(before.passed and not failed, words)
    return found


def _suite() -> list[tuple[Path, str]]:
    """Return the files of the suite and of this environment's pytest, each with its path in the
    pod. pytest is copied too, because pods reach no package registry.
    """
    found = [(ROOT / "tests", "tests"), (ROOT / "pyproject.toml", "pyproject.toml")]
    for package in PACKAGES:
        files = importlib.metadata.files(package) or ()
        found += [(Path(str(f.locate())), f"packages/{f}") for f in files if f.parts[0] != ".."]
    return found
