"""The use of a user's folders: measurement, warnings and refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.project import ROOT

from tfcluster_magic.backends import folder_sizes
from tfcluster_magic.backends.folder_sizes import MeasuredFolder, measure
from tfcluster_magic.backends.kubernetes.namespace_access import gather_facts
from tfcluster_magic.errors import PreflightRefused
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.launch_checks.kubernetes import LaunchFacts, preflight
from tfcluster_magic.launch_checks.policy_check import ClaimFacts, NamespaceObjects
from tfcluster_magic.quota import storage
from tfcluster_magic.quota.limits import LIMITS_VARIABLE
from tfcluster_magic.quota.preflight import Limit, Options
from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import Mode, Phase, Spec

MIB = 1 << 20
MUCH = Limit(total=1e15, free=1e15)


@pytest.fixture(autouse=True)
def anew() -> None:
    """Clear the measurements that other tests have cached."""
    folder_sizes._CACHE.clear()


def put(file: Path, size: int) -> None:
    """Write a file that takes this number of bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(os.urandom(size))


def test_folders_are_measured_by_what_lies_in_them(tmp_path: Path) -> None:
    """Each folder counts only its own contents; a log folder lists its runs, the largest first;
    links are not followed.
    """
    put(tmp_path / "model.h5", 3 * MIB)
    put(tmp_path / "notes" / "a" / "b.txt", MIB)
    put(tmp_path / "data" / "train.csv", 5 * MIB)
    for run, size in (("digits/1", 1), ("digits/2", 4), ("train/1", 2)):
        put(tmp_path / "log" / run / "model.ckpt-1.data", size * MIB)
    put(tmp_path.parent / "elsewhere" / "large", 9 * MIB)
    (tmp_path / "link").symlink_to(tmp_path.parent / "elsewhere")
    home, data, log = measure(
        [
            MeasuredFolder("workspace", tmp_path),
            MeasuredFolder("data", tmp_path / "data"),
            MeasuredFolder("log", tmp_path / "log", runs=True),
        ]
    )
    measured = [round((each.used or 0) / MIB) for each in (home, data, log)]
    assert measured == [4, 5, 7]
    assert [part.name for part in home.largest][:2] == ["model.h5", "notes"]
    assert [part.name for part in log.largest] == ["digits-2", "train-1", "digits-1"]
    assert not log.at_least


def test_what_cannot_be_measured_stands_against_nothing(tmp_path: Path) -> None:
    """A missing folder counts as empty; for a path that is no folder, the result has the reason why
    it was not measured.
    """
    put(tmp_path / "file", 1)
    missing, none = measure(
        [MeasuredFolder("data", tmp_path / "no", 1), MeasuredFolder("log", tmp_path / "file", 1)]
    )
    assert (missing.used, missing.note) == (0, "")
    assert none.used is None
    assert "Not a directory" in none.note
    assert not storage.problems([missing, none])


def test_a_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement of a folder stops after a maximum number of files, and reports that the
    folder has more.
    """
    monkeypatch.setattr(folder_sizes, "MOST_ENTRIES", 20)
    for number in range(50):
        put(tmp_path / "many" / str(number), 5000)
    (found,) = measure([MeasuredFolder("workspace", tmp_path)])
    assert found.at_least
    assert found.used


def test_a_file_system_of_its_own_is_full_when_nothing_is_free(tmp_path: Path) -> None:
    """A folder with its own file system is as full as that file system, whatever the sum of its
    files.
    """
    script = (
        "import sys; from pathlib import Path; import msgspec\n"
        "from tfcluster_magic.quota import storage\n"
        "from tfcluster_magic.backends.folder_sizes import MeasuredFolder as Measured, measure\n"
        "folder = Measured('log', Path(sys.argv[1]), 4 << 20, runs=True)\n"
        "run = folder.path / 'digits' / '1'; run.mkdir(parents=True)\n"
        "(empty,) = measure([folder])\n"
        "try: (run / 'model').write_bytes(bytes(8 << 20))\n"
        "except OSError: pass\n"
        "from tfcluster_magic.backends.folder_sizes import _CACHE as cache; cache.clear()\n"
        "(full,) = measure([folder])\n"
        "print(msgspec.json.encode([empty.share, full.share, [str(p) for p in "
        "storage.problems([full])]]).decode())\n"
    )
    mount = f'mount -t tmpfs -o size=4m none "{tmp_path}" && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, ""]
    said = subprocess.run(
        [*command, sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    empty, full, problems = msgspec.json.decode(said.stdout)
    assert empty < 0.1
    assert full == 1.0
    assert "4Mi of 4Mi" in problems[0]
    assert "`tfcluster delete digits-1 --with-logs`" in problems[0]


def test_from_four_fifths_a_person_is_told(tmp_path: Path) -> None:
    """A folder that is 80 % full causes a warning with candidates to delete; a full folder causes a
    refusal instead.
    """
    volume = storage.FolderUsage(
        name="data",
        path="/data",
        used=79,
        allowed=100,
        largest=(storage.FolderEntry(name="a", used=70),),
    )
    replace = msgspec.structs.replace
    assert not storage.warnings([volume])
    (said,) = storage.warnings([replace(volume, used=80)])
    assert "80 of 100" in said
    assert "The largest in /data are a 70: delete what you do not need" in said
    full = [replace(volume, used=100)]
    assert not storage.warnings(full)
    assert "it is full, and nothing new starts" in str(storage.problems(full)[0].allowed)


def test_launches_are_refused_when_a_folder_is_full(
    own_folders: Path, here: Path, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., None]
) -> None:
    """A launch warns if the user's log folder is nearly full. If the folder is full, the launch is
    refused, and succeeds after the remedy that the refusal names.
    """
    limits = own_folders / "ada.json"
    limits.write_text('{"storage": {"log": "10Mi"}}')
    monkeypatch.setenv(LIMITS_VARIABLE, str(limits))
    monkeypatch.chdir(here)
    (here / "hello.py").write_text("print('hello')")
    manager = ClusterManager()

    def launch() -> str:
        run = manager.launch("hello.py", workers=1, name="hello")
        manager.wait(run.metadata.name, until=Until.RELEASED)
        run = manager.status(run.metadata.name)
        assert run.status.phase is Phase.SUCCEEDED
        return "\n".join(run.status.warnings)

    assert "log" not in launch()
    output = Path(manager.status("hello-1").status.paths["output"])
    put(output / "model.ckpt-1.data", 9 * MIB)
    monkeypatch.setattr(folder_sizes, "CACHE_SECONDS", 0.0)
    assert "your log folder holds 9" in launch()
    put(output / "model.ckpt-2.data", 2 * MIB)
    monkeypatch.setattr(folder_sizes, "CACHE_SECONDS_WHEN_FULL", 0.0)
    monkeypatch.setattr(folder_sizes, "CACHE_FACTOR", 0)
    with pytest.raises(PreflightRefused) as refused:
        manager.launch("hello.py", workers=1, name="hello")
    said = str(refused.value)
    assert "of 10Mi" in said
    assert "The largest are hello-1 11Mi, hello-2 " in said
    assert "`tfcluster delete hello-1 --with-logs`" in said
    manager.delete("hello-1", with_logs=True)
    assert "log" not in launch()


def test_claims_are_measured_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    """A notebook on Kubernetes measures its mounted claims and compares them with the sizes that
    the operator published. Outside of such a notebook, and for a claim without a volume, nothing is
    reported.
    """
    claims = {"log": ClaimFacts(size=10.0 * MIB), "data": ClaimFacts()}
    policy = Policy(log_path=str(tmp_path / "log"), data_path=str(tmp_path / "data"))
    offer = LaunchFacts(policy=policy, names=NamespaceObjects(claims=claims))
    there = Options(backend="kubernetes", cpu=MUCH, memory=MUCH, gpu=MUCH)
    put(tmp_path / "data" / "x", MIB)
    put(tmp_path / "log" / "digits" / "1" / "model", 11 * MIB)
    spec = Spec(mode=Mode.IN_GRAPH)
    inside = preflight(spec, gather_facts(spec, there, offer, here=True))
    (full,) = [each for each in inside.problems if str(each.field).startswith("storage")]
    assert full.field == "storage.log"
    assert "digits-1 11Mi" in str(full.allowed)
    outside = preflight(spec, gather_facts(spec, there, offer, here=False))
    assert not any(str(each.field).startswith("storage") for each in outside.problems)
