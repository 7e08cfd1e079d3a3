"""The informer with a server that speaks the watch protocol and fails on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from support.polling import wait_until
from support.watch_server import PATH, WatchServer

from tfcluster_magic.kube.api import client, informer
from tfcluster_magic.kube.api.informer import LONGEST_PAUSE, CacheUpdate, Informer, backoff_seconds


@pytest.fixture
def server() -> Iterator[WatchServer]:
    running = WatchServer()
    yield running
    running.close()


class Told:
    """An informer of a server's pods, which records the calls of its callbacks."""

    def __init__(self, server: WatchServer) -> None:
        self.words: list[str] = []
        self.threads: set[int] = set()
        self.stumbles_over = ""
        self.informer = Informer(
            server.api(), PATH, changed=self._note, group=lambda pod: pod["metadata"].get("run")
        )
        self.informer.start()
        assert self.informer.synced.wait(90)

    def _note(self, update: CacheUpdate) -> None:
        self.threads.add(threading.get_ident())
        kind = "gone" if update.new is None else "new" if update.old is None else "changed"
        name = update.object["metadata"]["name"]
        if name == self.stumbles_over:
            raise ValueError(name)
        self.words.append(f"{kind} {name}")


@pytest.fixture
def told(server: WatchServer) -> Iterator[Told]:
    server.put("one")
    server.put("two")
    following = Told(server)
    wait_until(server.watches)
    yield following
    following.informer.stop()


def test_changes_are_told_in_order_on_one_thread(server: WatchServer, told: Told) -> None:
    """Callbacks report each added, changed and deleted object, in order, on one thread."""
    server.put("three")
    server.put("one")
    server.remove("two")
    wait_until(lambda: len(told.words) == 5)
    assert told.words == ["new one", "new two", "new three", "changed one", "gone two"]
    assert len(told.threads) == 1
    assert {each["metadata"]["name"] for each in told.informer.every()} == {"one", "three"}


def test_a_cut_watch_goes_on_where_it_was(server: WatchServer, told: Told) -> None:
    """A watch that was cut resumes from the last version, also if a bookmark had that version,
    without a new list.
    """
    server.bookmark()
    last = server.version
    server.put("three")
    wait_until(lambda: "new three" in told.words)
    server.cut()
    server.remove("one")
    wait_until(lambda: "gone one" in told.words)
    assert int(server.watches()[-1]["resourceVersion"]) > last
    assert len(server.lists()) == 1


def test_what_was_deleted_while_the_history_was_lost_is_told(
    server: WatchServer, told: Told
) -> None:
    """After the error 410, a new list is compared: only deleted, new, changed and recreated objects
    are reported.
    """
    with server.condition:
        server.remove("two", quietly=True)
        server.put("three", quietly=True)
        server.remove("one", quietly=True)
        server.put("one", quietly=True, uid="another")
        server.forgotten = server.version - 1
        server.cut()
    wait_until(lambda: len(told.words) == 6)
    assert sorted(told.words[2:]) == ["gone one", "gone two", "new one", "new three"]
    assert told.words.index("gone one") < told.words.index("new one", 1)
    server.put("four")
    wait_until(lambda: "new four" in told.words)


def test_a_silent_watch_is_taken_up_again(
    server: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch on a dead connection is detected, and missed changes are reported."""
    monkeypatch.setattr(client, "WATCH_SECONDS", 0.3)
    monkeypatch.setattr(client, "SILENCE", 0.3)
    server.silent = True
    told = Told(server)
    wait_until(server.watches)
    server.put("one")
    wait_until(lambda: len(server.watches()) > 1)
    server.silent = False
    wait_until(lambda: told.words == ["new one"])
    told.informer.stop()


def test_a_long_list_comes_in_pages(server: WatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list longer than a page is fetched in several pages, and is complete once the informer is
    synced.
    """
    monkeypatch.setattr(client, "PAGE", 10)
    for number in range(35):
        server.put(f"pod-{number:02}", run="even" if number % 2 == 0 else "odd")
    told = Told(server)
    assert len(told.informer.every()) == 35
    assert len(told.informer.of("even")) == 18
    assert [each.get("continue") for each in server.lists()] == [None, "10", "20", "30"]
    told.informer.stop()


def test_a_group_follows_its_objects(server: WatchServer, told: Told) -> None:
    """`of` returns the current objects of a group."""
    server.put("one", run="digits-1")
    wait_until(lambda: told.informer.of("digits-1"))
    server.put("one", run="digits-2")
    wait_until(lambda: told.informer.of("digits-2"))
    assert told.informer.of("digits-1") == []


def test_watches_that_end_at_once_make_no_busy_loop(
    server: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After watches that end at once or are refused, the informer retries with growing delays."""
    # so that every watch counts as short-lived, also on a busy machine
    monkeypatch.setattr(informer, "SHORT_LIVED", 600.0)
    server.closes_at_once = True
    told = Told(server)
    wait_until(lambda: len(server.watches()) > 3)
    times = [float(each["at"]) for each in server.watches()[:4]]
    shortest = [informer.FIRST_PAUSE / 2 * 2**number for number in range(3)]
    for (at, later), least in zip(pairwise(times), shortest, strict=True):
        assert later - at >= least
    server.refusal = (500, {"message": "the database is away"})
    wait_until(lambda: told.informer.problem)
    assert str(told.informer.problem) == "the database is away"
    server.refusal, server.closes_at_once = None, False
    server.put("one")
    wait_until(lambda: told.words == ["new one"] and told.informer.problem is None)
    told.informer.stop()


def test_a_reader_that_fails_stops_nobody(server: WatchServer, told: Told) -> None:
    """An error in a callback is logged, and the next change is still reported."""
    told.stumbles_over = "three"
    server.put("three")
    server.put("four")
    wait_until(lambda: "new four" in told.words)
    assert "new three" not in told.words
    assert told.informer.get("a", "three")


def test_pauses_grow_and_differ() -> None:
    """Delays grow with failures up to a limit, and half of each delay is random."""
    assert all(0.1 <= backoff_seconds(1) <= 0.2 for _ in range(20))
    assert all(LONGEST_PAUSE / 2 <= backoff_seconds(50) <= LONGEST_PAUSE for _ in range(20))
    assert len({backoff_seconds(5) for _ in range(20)}) > 1


def test_a_long_list_is_trimmed_page_by_page(
    server: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the next page of a list arrives, only the needed parts of the page before are kept."""
    monkeypatch.setattr(client, "PAGE", 1)
    server.put("one")
    server.put("two")
    pages: list[int] = []

    def trim(pod: dict[str, object]) -> dict[str, object]:
        pages.append(len(server.lists()))
        return pod

    following = Informer(server.api(), PATH, trim=trim)
    following.start()
    assert following.synced.wait(90)
    following.stop()
    assert pages == [1, 2]


def test_pages_are_as_large_as_their_bytes_allow(
    server: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page of a list is short, because the size of the objects is not known yet. The size
    of a later page follows from the bytes of the pages before it, so that a page has many small
    objects or few large objects.
    """
    monkeypatch.setattr(client, "FIRST_PAGE", 2)
    monkeypatch.setattr(client, "PAGE", 20)
    monkeypatch.setattr(client, "PAGE_BYTES", 20_000)
    for number in range(40):
        server.put(f"a-{number:02}")
    for number in range(20):
        server.put(f"b-{number:02}", note="x" * 9_000)
    told = Told(server)
    assert len(told.informer.every()) == 60
    limits = [int(each["limit"]) for each in server.lists()]
    assert limits[:3] == [2, 8, 20]
    assert limits[-1] == 2
    told.informer.stop()
