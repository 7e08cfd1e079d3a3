"""A hub for system accounts. Under root, each notebook runs under its user's account; otherwise
only the owner has a notebook.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests
from support.hub.make_run import OWNER, PASSWORD, Hub
from support.hub.real_hub import RealHub
from support.hub.system_accounts import UIDS, becoming, entered, open_folder
from support.hub.visitor import Visitor

from tfcluster_magic.hub.user_limits import Allowances

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
LOOK = """
import os, pathlib
for name in ("ada", "bob"):
    try:
        print(name, sorted(os.listdir(f"/home/{name}/tfcluster")))
    except OSError as error:
        print(name, type(error).__name__)
limits = os.environ["TFCLUSTER_LIMITS"]
print("limits", os.access(limits, os.R_OK), os.access(limits, os.W_OK))
print(os.getuid(), os.getgroups(), pathlib.Path.home(), "OF_ROOT" in os.environ)
"""
LAUNCH = """
import os, pathlib
from tfcluster_magic import ClusterManager
pathlib.Path("train.py").write_text("import time; time.sleep(3600)")
print(ClusterManager().launch("train.py", name="adas", workers=1, grace=1.0).metadata.name)
os.symlink({runs!r}, pathlib.Path.home() / ".local/state/tfcluster/runs/linked")
"""
SCHEDULE = """
import os, time
os.environ["TFCLUSTER_NO_CLOCK"] = "1"
from msgspec.structs import replace
from tfcluster_magic import ClusterManager
manager = ClusterManager()
made = manager.schedules.create("nightly", cell="print('hello')", cron="0 0 * * *", workers=1)
def due(schedule):
    return replace(schedule, status=replace(schedule.status, cursor=time.time() - 200000))
manager._backend.schedules().change("nightly", due)
print("made", made.name)
"""
NEVER = """
import asyncio
async def wait(spawner):
    await asyncio.Event().wait()
c.Spawner.pre_spawn_hook = wait
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Path]:
    """A folder that every account may enter, unlike pytest's own."""
    with open_folder(UIDS.values()) as folder:
        yield folder


@pytest.fixture(scope="module")
def of_root(machine: Path) -> Iterator[Hub]:
    """A hub started like `make run` as root, on a machine with the accounts ada and bob."""
    (folder := machine / "root").mkdir(mode=0o700)
    (around := machine / "around-root").mkdir()
    hub = Hub(folder, environment={"OF_ROOT": "hidden", "TFCLUSTER_HUB_CLOCKS": "1"})
    hub.prefix = entered(around, [folder])
    hub.start()
    yield hub
    hub.close()
    shutil.rmtree(Allowances(hub.state / "hub").of_others)


@pytest.fixture(scope="module")
def of_ada(machine: Path) -> Iterator[Hub]:
    """A hub started like `make run` as ada, an ordinary account of that machine."""
    (folder := machine / "ada").mkdir(mode=0o700)
    (around := machine / "around-ada").mkdir()
    hub = Hub(folder)
    hub.prefix = [*entered(around, [folder]), *becoming("ada")]
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UIDS["ada"], UIDS["ada"])
    hub.start()
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def owner(of_root: Hub) -> Visitor:
    """The hub's owner, signed in with the link of the first start."""
    return of_root.owner_signs_in()


def test_as_root_each_notebook_is_its_own_accounts(of_root: Hub) -> None:
    """A notebook runs under its user's uid in its own home, without root's environment, and cannot
    open another workspace.
    """
    said = {}
    for name in UIDS:
        person = arrived(of_root, name)
        said[name] = person.run(person.spawn(), LOOK)

    for name, other in (("ada", "bob"), ("bob", "ada")):
        uid = UIDS[name]
        assert f"{uid} [{uid}] /home/{name} False" in said[name]
        assert f"{name} ['.tfcluster', 'examples'" in said[name]
        assert f"{other} ['" not in said[name], said[name]
        assert "limits True False" in said[name]
    assert "ada PermissionError" in said["bob"]


def test_as_root_the_console_reads_each_account_as_that_account(
    of_root: Hub, owner: Visitor
) -> None:
    """The console sees and stops everyone's clusters, and follows no link to files of root."""
    of_root.launch("import time; time.sleep(3600)", "roots", workers=1)
    ada = arrived(of_root, "ada")
    said = ada.run(ada.spawn(), LAUNCH.format(runs=str(of_root.state / "runs" / "roots")))
    assert "adas-1" in said, said
    made = owner.api("POST", f"users/{OWNER}/tokens", {"scopes": ["access:services!service=admin"]})
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {made.json()['token']}"
    clusters = f"{of_root.url}/services/admin/api/clusters"

    def owned() -> list[tuple[str, str]]:
        rows = session.get(clusters, timeout=120).json()["items"]
        return sorted((row["owner"], row["name"]) for row in rows)

    of_root.until(lambda: ("ada", "adas-1") in owned(), "the run of ada")
    assert owned() == [("ada", "adas-1"), (OWNER, "roots-1")]
    body = {"runs": [{"owner": "ada", "name": "adas-1"}], "reason": "an exam"}
    told = session.post(f"{clusters}/stop", json=body, timeout=120).json()
    assert told["results"][0]["ok"], told
    of_root.until(lambda: f"by admin {OWNER}: an exam" in session.get(clusters).text, "stopped")

    archives = clusters.replace("clusters", "archives")
    begun = session.post(archives, json={"user": "ada", "reason": "the term is over"}, timeout=120)
    assert begun.status_code == 202, begun.text

    def archive() -> dict[str, object]:
        return next(one for one in session.get(archives, timeout=120).json()["items"])

    of_root.until(lambda: archive()["state"] != "packing", "packed", 150)
    assert archive()["state"] == "done", archive()
    with tarfile.open(of_root.state / "hub" / "archives" / str(archive()["file"])) as tar:
        assert {one.uid for one in tar if one.name != "MANIFEST.json"} == {UIDS["ada"]}
        assert tar.getmember("runs/linked").issym()
        assert tar.getmember("workspace/train.py").isreg()
        assert not any("roots" in name for name in tar.getnames())


def test_as_root_schedules_run_while_their_owner_is_away(of_root: Hub, owner: Visitor) -> None:
    """For each user with schedules, the hub starts a clock process under the user's account, and
    starts it again when it dies. The console can pause such a schedule. When the user is removed
    from the hub, the clock process ends.
    """
    bob = arrived(of_root, "bob")
    said = bob.run(bob.spawn(), SCHEDULE)
    assert "made nightly" in said, said
    assert owner.api("DELETE", "users/bob/server").status_code in (202, 204)
    of_root.until(lambda: len(clocks()) == 1, "a clock")
    (first,) = clocks()
    assert first.uids().real == first.uids().saved == UIDS["bob"]
    assert first.environ()["TFCLUSTER_LIMITS"]
    assert not any(key.startswith("JUPYTERHUB") for key in first.environ())
    made = owner.api("POST", f"users/{OWNER}/tokens", {"scopes": ["access:services!service=admin"]})
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {made.json()['token']}"
    schedules = f"{of_root.url}/services/admin/api/schedules"

    def marks() -> list[tuple[str, str]]:
        (row,) = session.get(schedules, timeout=120).json()["items"] or [{"marks": []}]
        return [(each["run"], each["state"]) for each in row["marks"]]

    of_root.until(lambda: marks() == [("nightly-1", "Succeeded")], "what was due")
    body = {"schedules": [{"owner": "bob", "name": "nightly"}], "reason": "an exam"}
    told = session.post(f"{schedules}/pause", json=body, timeout=120).json()
    assert told["results"][0]["ok"], told
    (row,) = session.get(schedules, timeout=120).json()["items"]
    assert (row["state"], row["by"], row["reason"]) == ("Paused", f"admin {OWNER}", "an exam")
    # the home of bob, an account that this test made in a mount namespace of its own
    state = Path(f"/proc/{first.pid}/root/home/bob/.local/state/tfcluster/schedules/nightly")
    assert {one.stat().st_uid for one in state.iterdir()} == {UIDS["bob"]}

    first.kill()
    of_root.until(lambda: clocks() and clocks() != [first], "another clock")
    assert owner.api("DELETE", "users/bob").status_code == 204
    of_root.until(lambda: not clocks(), "no clock of a removed user")


def clocks() -> list[psutil.Process]:
    """Return the clock processes of the accounts of this file."""
    found = []
    for one in psutil.process_iter(["cmdline", "uids"]):
        words, uids = one.info["cmdline"] or (), one.info["uids"]
        if uids and uids.real in UIDS.values() and any("local.clock" in word for word in words):
            found.append(one)
    return found


def test_as_root_who_has_no_account_is_refused(of_root: Hub) -> None:
    """A user without a system account is refused; the page says how to make the account."""
    refused = arrived(of_root, "carl").get("hub/spawn")

    assert refused.status_code == 403
    assert "This machine has no system account carl" in refused.text
    assert "useradd --create-home carl" in refused.text


def test_who_is_refused_is_told_however_slow_the_machine_is(tmp_path: Path) -> None:
    """The reason of a refusal is shown before a slow start begins, instead of later on another
    page.
    """
    hub = RealHub(tmp_path / "slow", ["carl"], more=NEVER, several=False)
    try:
        hub.start()
        refused = hub.visitor("carl").get("hub/spawn")
        assert refused.status_code == 403
        assert "This machine has no system account carl" in refused.text
    finally:
        hub.close()


def test_an_ordinary_users_hub_is_theirs_alone(of_ada: Hub) -> None:
    """`make run` says that the hub is for its owner; other users are refused with the reason."""
    assert "Notebooks run as ada, for ada alone" in of_ada.told
    of_ada.visitor().set_password(of_ada.link)
    ada = Visitor(f"{of_ada.url}/")
    ada.sign_in("ada", PASSWORD)
    own = ada.spawn()

    refused = arrived(of_ada, "bob").get("hub/spawn")

    assert refused.status_code == 403
    assert "This hub was started by ada, so every notebook would run as ada" in refused.text
    assert "ports open to the others" in refused.text
    assert str(UIDS["ada"]) in ada.run(own, LOOK)


def arrived(hub: Hub, name: str) -> Visitor:
    """Return a user who was invited, has set a password and is signed in."""
    hub.visitor().set_password(hub.accounts("invite", name, "--reset").strip())
    visitor = Visitor(f"{hub.url}/")
    visitor.sign_in(name, PASSWORD)
    return visitor
