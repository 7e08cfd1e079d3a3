"""A backend that hangs or is away, simulated by files that really block their readers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.blocking_file import Blocking
from support.server.calls import Api, Events, Launch, assert_problem

from tfcluster_magic.backends.local.run_store import RunFolder
from tfcluster_magic.kube.api import access
from tfcluster_magic.server.service import Service
from tfcluster_magic.spec import TFCluster

Page = Callable[[], Awaitable[Events]]


def folder_of(run: TFCluster) -> RunFolder:
    return RunFolder(Path(run.status.paths["logs"]).parent)


async def test_a_hanging_state_folder(api: Api, ended: Launch, page: Page) -> None:
    """While the state folder hangs, every route answers with the reason, pages get the reason as an
    event, and the event loop stays free. When the folder is back, all routes and events work again.
    """
    run = await ended()
    events = await page()
    await events.phase("Succeeded")
    blocking = Blocking(folder_of(run).status_file)
    try:
        asked = [
            api(method, path)
            for method, path in (
                *[("GET", "clusters")] * 20,
                ("GET", "clusters/digits"),
                ("POST", "clusters/digits/stop"),
                ("DELETE", "clusters/digits"),
                ("GET", "clusters/digits/logs"),
                ("GET", "options"),
            )
        ]
        for answer in await asyncio.gather(*asked):
            assert_problem(answer, 503)
        told = await events.until(lambda e: e["type"] == "unavailable")
        assert told["problem"]["status"] == 503
        assert told["run"] is None
    finally:
        blocking.end()
    await events.until(lambda e: e["type"] == "available")
    listed = await api("GET", "clusters")
    assert listed.json["problem"] is None
    assert listed.json["runs"][0]["cluster"]["status"]["phase"] == "Succeeded"
    numbers = [event["sequence"] for event in events.seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_a_state_folder_that_cannot_be_read(
    api: Api, ended: Launch, page: Page, service: Service
) -> None:
    """An error of the backend is sent to pages with its text. The server tries again, and then
    sends the changes that were made meanwhile.
    """
    await ended()
    await ended(name="other")
    events = await page()
    await events.until(lambda e: e["name"] == "other-1")
    runs = Path(os.environ["TFCLUSTER_STATE_DIR"]) / "runs"
    aside = runs.with_name("aside")
    runs.rename(aside)
    runs.write_text("no folder")
    assert_problem(await api("GET", "clusters"), 503, "cannot read the state folder")
    told = await events.until(lambda e: e["type"] == "unavailable")
    assert "cannot read the state folder" in told["problem"]["detail"]
    assert [k.cluster.metadata.name for k in service.watcher.known().values()], "it is still known"
    runs.unlink()
    aside.rename(runs)
    service.manager.delete("other")
    await events.until(lambda e: e["type"] == "available")
    gone = await events.until(lambda e: e["type"] == "removed")
    assert gone["name"] == "other-1"
    assert (await api("GET", "clusters")).status == 200


async def test_a_hanging_log_volume_stops_nothing_but_progress(
    api: Api, launch: Launch, page: Page, service: Service
) -> None:
    """While the folder with event files hangs, lists, records and changes are still sent."""
    run = await launch()
    events = await page()
    await events.phase("Running")
    output = Path(run.status.paths["output"])
    file = output / "events.out.tfevents.0000001000.host"
    file.write_bytes(b"")
    blocking = Blocking(file)
    try:
        await asyncio.sleep(1.5)  # by now, a read of this folder hangs
        assert (await api("GET", "clusters")).json["runs"][0]["progress"] is None
        assert (await api("POST", "clusters/digits/stop")).status == 200
        await events.phase("Stopped")
    finally:
        blocking.end()


async def test_which_backend_is_meant_is_never_asked_on_the_loop(
    api: Api, service: Service, tmp_path: Path
) -> None:
    """In a pod whose API server does not answer, the first launch waits in a thread. The event loop
    stays free, and the response names the API server.
    """
    account_folder = tmp_path / "serviceaccount"
    account_folder.mkdir()
    (account_folder / "token").write_text("token")
    kubeconfig = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patched:
        host, port = silent.getsockname()
        kubeconfig.write_text(
            "{apiVersion: v1, kind: Config, current-context: here, users: [],"
            f" clusters: [{{name: c, cluster: {{server: 'http://{host}:{port}'}}}}],"
            " contexts: [{name: here, context: {cluster: c, namespace: alice}}]}"
        )
        patched.setattr(access, "SERVICE_ACCOUNT_FOLDER", account_folder)
        patched.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        patched.setenv("KUBECONFIG", str(kubeconfig))
        try:
            asked = api("POST", "clusters", {"cell": "pass", "kernelspec": "python3"})
            answer = asyncio.ensure_future(asked)
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                assert await asyncio.to_thread(connection.recv, 65536)
                connection.setblocking(False)
                # the launch still waits, and the event loop is free meanwhile
                with pytest.raises(BlockingIOError):
                    connection.recv(65536)
                assert_problem(await answer, 503)
        finally:
            del service.manager  # so that the next test gets a new manager
