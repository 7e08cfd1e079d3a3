"""`python -m tfcluster_magic.hub check-policy`: a check of policy files before they are applied."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.project import ROOT

from tfcluster_magic.hub.__main__ import main


def check(*files: object, typed: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["check-policy", *map(str, files)], input=typed)


def test_the_shipped_policies_are_valid_and_recognised() -> None:
    """The command says of each file which policy it is, and exits with 0 if all are valid."""
    operator, hub = ROOT / "k8s" / "base" / "policy.yaml", ROOT / "hub_config" / "policy.yaml"
    done = check(operator, hub)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        f"{operator}: valid as the operator's policy",
        f"{hub}: valid as the hub's policy",
    ]


def test_every_mistake_of_every_file_is_printed(tmp_path: Path) -> None:
    """The command prints the mistakes of all files with their lines, and exits with 2."""
    operator, hub = tmp_path / "operator.yaml", tmp_path / "hub.yaml"
    operator.write_text("\n\n\ndefaultCpu: two\nmaxTasks: many\n")
    hub.write_text("default:\n  idle: {cull: 2h}\ngroups:\n  a: {limits: {max: {cpu: low}}}\n")
    done = check(operator, hub)
    assert done.exit_code == 2
    assert done.output.splitlines() == [
        f"{operator}: not valid as the operator's policy",
        "  line 4: defaultCpu: got 'two'; a number of cores above 0, at most 1024",
        "  line 5: maxTasks: got 'many'; a whole number from 1 to 4000",
        f"{hub}: not valid as the hub's policy",
        (
            "  line 2: default.idle.cull: got '2h'; "
            "a number of seconds above 0, at most 31622400, such as 7200, or null"
        ),
        (
            "  line 4: groups.a.limits.max.cpu: got 'low'; "
            "a number of cores above 0, at most 4096, or null"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (b"", 0, "valid as the operator's policy and as the hub's policy"),
        (b"dns: []\n", 2, "not valid as the operator's policy and as the hub's policy"),
        (b"images: [a b]\n", 2, "line 1: images[0]: got 'a b'; it is not an image"),
        (b"images: [{name: a, image: x}]\n", 0, "valid as the hub's policy"),
        (b"defualtImage: x\n", 2, "not valid as the operator's policy"),
        (b"grups: {}\n", 2, "not valid as the hub's policy"),
        (b"default: {quota: {gpu: two}}\n", 2, "line 1: default.quota.gpu: got 'two'"),
        (b"a: [\n", 2, "not valid as a policy\n  line 2: it is not valid YAML"),
        (b"\xff", 2, "line 1: it is not UTF-8 text"),
        (b"- 1\n", 2, "line 1: got [1]; a mapping with the fields"),
        (b"apiVersion: v1\nkind: ConfigMap\n", 2, "line 1: it is a Kubernetes manifest"),
    ],
)
def test_a_policy_is_recognised_by_its_fields(text: bytes, code: int, said: str) -> None:
    """The fields, even misspelt ones, say which policy a file is; without any, it may be both."""
    done = check("-", typed=text)
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_without_jupyterhub_the_other_commands_work() -> None:
    """The help lists every command. One that needs a missing package says so."""

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys; sys.modules['jupyterhub'] = None; "
            "sys.argv[0] = 'hub'; from runpy import run_module; "
            "run_module('tfcluster_magic.hub', run_name='__main__')"
        )
        python = [sys.executable, "-c", code, *words]
        return subprocess.run(python, capture_output=True, text=True, check=False)

    shown = done("--help")
    assert shown.returncode == 0 and "check-policy" in shown.stdout, shown.stderr
    refused = done("backup", "--to", "x")
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "Needs the Python package jupyterhub" in refused.stderr


def test_a_missing_file_is_refused() -> None:
    """A file that does not exist is an invalid argument."""
    done = check("/no/such/policy.yaml")
    assert done.exit_code == 2
    assert "'/no/such/policy.yaml' does not exist" in done.output
