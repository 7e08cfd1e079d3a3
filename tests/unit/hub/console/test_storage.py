"""The storage page of the console: how its usage is measured, and which rows it has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.kube_server import KubeServer, Refusal

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.hub.console import cached_reading
from tfcluster_magic.hub.console.sites import kubernetes
from tfcluster_magic.hub.console.sites.base import SiteStorage
from tfcluster_magic.hub.console.sites.local import LocalSite
from tfcluster_magic.hub.console.tables import STORAGE, storage_page, storage_rows
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.quota.storage import FolderUsage

GIB = 1 << 30


def test_a_persons_folders_are_read_by_their_reader(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine, each user's folders are measured by the reader that runs as this user."""
    monkeypatch.chdir(own_folders)
    run = own_folders / "tfcluster" / "log" / "digits" / "1"
    run.mkdir(parents=True)
    (run / "model.ckpt-1.data").write_bytes(bytes(range(256)) * 20000)

    async def names() -> list[str]:
        return []

    async def read() -> SiteStorage:
        here = LocalSite("ada", names)
        try:
            return await here.storage()
        finally:
            await here.close()

    filled = asyncio.run(read())
    assert not filled.missed
    volumes = {each.name: each for each in filled.users["ada"]}
    assert list(volumes) == ["workspace", "data", "log"]
    log = volumes["log"]
    assert (log.used or 0) >= 256 * 20000
    assert [part.name for part in log.largest] == ["digits-1"]


def test_rows_stand_beside_what_is_allowed() -> None:
    """If the site has no limit, the policy's limit is shown. The fullest rows come first; rows
    above 80 % are counted and can be selected.
    """
    filled = SiteStorage(
        users={
            "ada": (FolderUsage(name="log", used=9 * GIB), FolderUsage(name="data", used=GIB)),
            "bob": (
                FolderUsage(name="log", used=GIB, allowed=4 * GIB),
                FolderUsage(name="data", note="why"),
            ),
        }
    )
    rows = storage_rows(filled, {"ada": {"log": 10 * GIB}, "bob": {"log": 1}})
    page = storage_page(rows, STORAGE.query({}))
    assert [(row.owner, row.name, row.share) for row in page["items"]] == [
        ("ada", "log", 0.9),
        ("bob", "log", 0.25),
        ("ada", "data", 0.0),
        ("bob", "data", 0.0),
    ]
    assert (page["total"], page["all"], page["full"]) == (4, 4, 1)
    only = storage_page(rows, STORAGE.query({"full": ["true"]}))
    assert [row.owner for row in only["items"]] == ["ada"]
    asked = {"sort": ["owner"], "q": ["BOB"], "limit": ["1"], "offset": ["1"]}
    assert [row.name for row in storage_page(rows, STORAGE.query(asked))["items"]] == ["log"]
    with pytest.raises(InvalidRequest) as wrong:
        STORAGE.query({"sort": ["size"], "full": ["maybe"], "x": ["1"], "limit": ["0"]})
    assert len(wrong.value.problems) == 4


def test_a_disk_is_not_walked_at_every_look() -> None:
    """Concurrent and later page views share one measurement; a failed measurement is not reused."""

    class World:
        asked = 0

        async def storage(self) -> SiteStorage:
            self.asked += 1
            await asyncio.sleep(0)
            if self.asked == 1:
                raise OSError("not now")
            return SiteStorage()

    async def look() -> int:
        world = World()
        kept = cached_reading.StorageCache(world)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="not now"):
            await kept.filled()
        await asyncio.gather(*(kept.filled() for _ in range(5)))
        await kept.filled()
        return world.asked

    assert asyncio.run(look()) == 2


@pytest.fixture
def server() -> Iterator[KubeServer]:
    """Yield an API server with a user's claims, one of them mounted, and a claim in a namespace
    without a user.
    """
    running = KubeServer()
    for namespace, name in (("u-ada", "log"), ("u-ada", "data"), ("u-eve", "log")):
        claim = {"status": {"capacity": {"storage": "10Gi"}}}
        running.put(path("persistentvolumeclaims", namespace, name), claim)
    running.put(path("persistentvolumeclaims", "u-ada", "other"), {"status": {}})
    running.put(path("nodes", "", "one"), {})
    yield running
    running.close()


def summary(available: int, capacity: int) -> dict[str, object]:
    """Return kubelet's summary of a node with one volume."""
    reference = {"name": "log", "namespace": "u-ada"}
    volume = {"pvcRef": reference, "availableBytes": available, "capacityBytes": capacity}
    return {"pods": [{"volume": [{"name": "tmp"}, volume]}]}


@pytest.mark.parametrize(
    ("told", "used", "note"),
    [
        (summary(4 * GIB, 10 * GIB), 6 * GIB, ""),
        (summary(0, 9 * GIB), 10 * GIB, ""),
        (summary(4 * GIB, 400 * GIB), None, "its volume is a folder of a larger disk"),
        ({"pods": []}, None, "no pod mounts it now"),
    ],
)
def test_claims_are_as_full_as_kubelet_says(
    server: KubeServer, told: dict[str, object], used: int | None, note: str
) -> None:
    """On Kubernetes, the usage of a claim is the usage of its file system, unless the claim is a
    folder on a larger disk. Claims of namespaces without a user are not shown.
    """
    server.put("/api/v1/nodes/one/proxy/stats/summary", told)
    filled = kubernetes.site_storage(server.api(), {"u-ada": "ada"})
    assert list(filled.users) == ["ada"]
    volumes = {each.name: each for each in filled.users["ada"]}
    assert volumes.keys() == {"log", "data"}
    assert (volumes["log"].used, volumes["log"].allowed) == (used, 10 * GIB)
    assert note in volumes["log"].note
    assert msgspec.json.decode(msgspec.json.encode(filled), type=SiteStorage) == filled


def test_without_the_right_to_ask_kubelets_claims_are_shown_all_the_same(
    server: KubeServer,
) -> None:
    """By default, the console has no right to ask kubelets; without this right it shows the sizes
    of claims, and says how to grant the right.
    """
    no = Refusal(403, "Forbidden", "no")
    server.refuses = lambda _method, where: no if "/nodes" in where else None
    filled = kubernetes.site_storage(server.api(), {"u-ada": "ada"})
    notes = {each.note for each in filled.users["ada"]}
    assert len(notes) == 1
    assert "may not read the kubelets" in notes.pop()
