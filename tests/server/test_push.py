"""The events that pages receive about runs, and the times at which they come."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.event_writer import event, event_file, version
from support.polling import wait_until_async
from support.server.calls import Api, Events, Launch
from traitlets.config import Config

from tfcluster_magic.backends.local.run_store import RunFolder
from tfcluster_magic.server import run_events
from tfcluster_magic.server.service import Service

Page = Callable[[], Awaitable[Events]]


def threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("tfcluster-watcher"))


def assert_gapless(events: Events) -> None:
    numbers = [e["sequence"] for e in events.seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len({e["stream"] for e in events.seen}) == 1


async def test_a_run_is_told_from_its_start_to_its_end(page: Page, launch: Launch) -> None:
    """A page receives each phase, in order, of a run that another client launched."""
    events = await page()
    await launch("print('hello')", workers=2)
    await events.phase("Succeeded")
    phases = [e["run"]["cluster"]["status"]["phase"] for e in events.seen]
    order = ["Queued", "Starting", "Running", "Succeeded"]
    assert phases == sorted(phases, key=order.index)
    assert {e["type"] for e in events.seen} == {"changed"}
    last = events.seen[-1]
    assert last["name"] == "digits-1"
    assert last["run"]["ready"] == {"ready": 2, "total": 2}
    assert "files" not in last["run"]["cluster"]["spec"]["program"]
    assert abs(last["at"] - time.time()) < 300
    assert_gapless(events)


async def test_a_list_and_the_events_fit_together(api: Api, page: Page, ended: Launch) -> None:
    """The sequence number of a list is the number of the last event that was sent before the list
    was made.
    """
    events = await page()
    await ended()
    last = await events.phase("Succeeded")
    listed = (await api("GET", "clusters")).json
    assert (listed["stream"], listed["sequence"]) == (last["stream"], last["sequence"])


async def test_a_deleted_run_disappears(page: Page, ended: Launch, service: Service) -> None:
    """If a run is deleted on the command line, pages receive one event that it was removed."""
    events = await page()
    run = await ended()
    await events.phase("Succeeded")
    await asyncio.to_thread(service.manager.delete, "digits")
    gone = await events.until(lambda e: e["type"] == "removed")
    assert (gone["name"], gone["run"]) == ("digits-1", None)
    await ended()  # the new run gets the number of the deleted run
    again = await events.phase("Succeeded")
    assert again["run"]["cluster"]["metadata"]["uid"] != run.metadata.uid
    assert_gapless(events)


async def test_a_route_that_deletes_is_told_once(
    api: Api, page: Page, launch: Launch, ended: Launch
) -> None:
    """A deletion by a page is sent to all pages at once, and the watcher does not repeat it."""
    events = await page()
    await launch()
    await events.phase("Running")
    await api("DELETE", "clusters/digits")
    await events.until(lambda e: e["type"] == "removed")
    await ended(name="other")
    await events.until(lambda e: e["name"] == "other-1" and e["run"]["ready"]["ready"] == 1)
    assert [e["name"] for e in events.seen if e["type"] == "removed"] == ["digits-1"]


async def test_many_pages_share_one_watch(page: Page, launch: Launch) -> None:
    """The records are watched only once for any number of tabs, and all tabs receive the same
    events.
    """
    pages = [await page() for _ in range(5)]
    await launch("pass")
    for events in pages:
        await events.phase("Succeeded")
    assert threads() == ["tfcluster-watcher_look", "tfcluster-watcher_watch"]
    first, *others = pages
    assert all(events.seen == first.seen for events in others)


async def test_a_run_that_changes_all_the_time(page: Page, ended: Launch) -> None:
    """If there are many changes in a second, a page receives only a few of them, but always the
    last one.
    """
    run = await ended()
    folder = RunFolder(Path(run.status.paths["logs"]).parent)
    events = await page()
    await events.phase("Succeeded")
    said = lambda event: event["run"]["cluster"]["status"]["message"]  # noqa: E731
    heard = asyncio.ensure_future(events.until(lambda e: said(e) == "the newest"))
    began, count = time.monotonic(), 0
    while count < 100 or len(events.seen) < 4:
        count += 1
        folder.write_status(replace(run.status, message=f"change {count}"))
        await asyncio.sleep(0.02)
        assert not heard.done()
    folder.write_status(replace(run.status, message="the newest"))
    await heard
    assert len(events.seen) - 1 <= (time.monotonic() - began) / run_events.EVERY + 3
    assert_gapless(events)


async def test_progress_is_told_and_kept(
    api: Api, page: Page, launch: Launch, service: Service
) -> None:
    """Training progress arrives without a request. The last progress of a run is kept, even in a
    restarted server.
    """
    run = await launch()
    events = await page()
    await events.phase("Running")
    output = Path(run.status.paths["output"])
    file = event_file(output)
    file.write_bytes(version() + event(100, {"loss": 0.5}) + event(200, {"loss": 0.25}))
    told = await events.until(lambda e: e["run"] is not None and e["run"]["progress"] is not None)
    assert told["run"]["progress"]["step"] == 200
    assert told["run"]["progress"]["loss"] == 0.25
    assert told["run"]["progress"]["history"] == [[100, 0.5], [200, 0.25]]
    with file.open("ab") as more:
        more.write(event(300, {"loss": float("nan")}))
    told = await events.until(lambda e: (e["run"]["progress"] or {}).get("step") == 300)
    assert told["run"]["progress"]["loss"] is None, "a diverged training has no number to show"
    (listed,) = (await api("GET", "clusters")).json["runs"]
    assert listed["progress"]["step"] == 300
    heard = len(events.seen)
    await api("POST", "clusters/digits/stop")
    await events.phase("Stopped")
    assert events.seen[-1]["run"]["progress"]["step"] == 300
    assert len(events.seen) - heard < 10, "the same loss, not a number, is no change"

    anew = Service(service.serverapp)
    anew.start()
    try:
        await wait_until_async(lambda: anew.view(service.manager.status("digits"))["progress"])
        kept = anew.view(service.manager.status("digits"))["progress"]
        assert (kept["step"], kept["total"]) == (300, None)
    finally:
        await anew.stop()


async def test_a_quiet_server_says_nothing(page: Page, launch: Launch) -> None:
    """While nothing changes, pages receive nothing, even about active runs."""
    events = await page()
    await launch()
    await events.phase("Running")
    with pytest.raises(asyncio.TimeoutError):
        await events.until(lambda _: True, within=3.0)


async def test_nothing_is_left_behind(page: Page, launch: Launch, service: Service) -> None:
    """When the extension stops, its threads end, but clusters continue."""
    events = await page()
    run = await launch()
    await events.phase("Running")
    await service.stop()
    await wait_until_async(lambda: not threads())
    assert service.manager.status(run.metadata.name).active


async def test_a_listener_that_fails_ends_nothing(
    page: Page, launch: Launch, jp_serverapp: Any, tmp_path: Path
) -> None:
    """Another extension's faulty listener does not stop pages from receiving events."""

    async def wrong(**_: Any) -> None:
        raise ZeroDivisionError

    failed = []

    def worse(schema_id: str, data: dict[str, Any]) -> dict[str, Any]:
        if not failed:
            failed.append(data["sequence"])
            raise ZeroDivisionError
        return data

    jp_serverapp.event_logger.add_listener(
        schema_id="https://tfcluster.dev/events/run/v1", listener=wrong
    )
    jp_serverapp.event_logger.add_modifier(
        schema_id="https://tfcluster.dev/events/run/v1", modifier=worse
    )
    events = await page()
    # On a busy machine, the first event of a short run may be its end.
    go = str(tmp_path / "go")
    await launch(f"import os, time\nwhile not os.path.exists({go!r}): time.sleep(0.02)")
    await wait_until_async(lambda: failed)
    Path(go).touch()
    await events.phase("Succeeded")


async def test_only_who_may_see_events_hears_them(
    http_server_client: Any, jp_http_port: int, jp_base_url: str, jp_serverapp: Any
) -> None:
    """Without a token, the stream of events does not open."""
    answer = await http_server_client.fetch(
        f"{jp_base_url}api/events/subscribe",
        headers={"Upgrade": "websocket", "Connection": "Upgrade"},
        raise_error=False,
        follow_redirects=False,
    )
    assert answer.code == 403


class TestActivity:
    """The setting `c.TFClusterApp.clusters_are_activity`."""

    @pytest.fixture(params=[True, False])
    def counts(self, request: pytest.FixtureRequest) -> bool:
        """Return the administrator's setting."""
        return bool(request.param)

    @pytest.fixture
    def jp_server_config(self, counts: bool) -> Config:
        """Return the configuration of a server with this setting."""
        return Config(
            {
                "ServerApp": {"jpserver_extensions": {"tfcluster_magic.server": True}},
                "TFClusterApp": {"clusters_are_activity": counts},
            }
        )

    async def test_running_clusters_count_when_asked_to(
        self, counts: bool, page: Page, launch: Launch, api: Api, jp_serverapp: Any
    ) -> None:
        """If this is set, a running cluster counts as activity every second; otherwise, it never
        does.
        """
        times = jp_serverapp.web_app.settings["last_activity_times"]
        events = await page()
        await launch()
        await events.phase("Running")
        began = datetime.now(timezone.utc)
        if counts:
            await wait_until_async(lambda: times.get("tfcluster", began) > began)
        else:
            await asyncio.sleep(1.5)  # by now, a check each second would have counted the run
            assert "tfcluster" not in times
        await api("POST", "clusters/digits/stop")
        await events.phase("Stopped")
        await asyncio.sleep(0.1)  # lets a check that was in progress count the run
        last = times.get("tfcluster")
        await asyncio.sleep(1.5)  # by now, a check each second would have counted the run
        assert times.get("tfcluster") == last, "an ended cluster is no activity"
