"""Name lookups of a task, which are made so that no name server caches a negative answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from support.polling import PATIENCE, wait_until

from tfcluster_magic.spec.task_file import RUNTIME

ALWAYS = {"kubernetes.default.svc.cluster.local"}
NAMES = [f"digits-1-worker-{index}.digits-1" for index in range(3)]


class Keeping:
    """A name server that caches its first answer for each name and type, as CoreDNS does for a
    while; `there` are the existing names.
    """

    def __init__(self) -> None:
        self.there = set(ALWAYS)
        self.code: int | None = None
        """The response code of every answer, or None for the right code."""
        self.loses = 0
        """The number of questions that it will leave unanswered."""
        self.asked: list[tuple[str, int]] = []
        self._kept: dict[tuple[str, int], int] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while (told := self._socket.recvfrom(512)) and told[0]:
            question, who = told
            name, place = [], 12
            while size := question[place]:
                name.append(question[place + 1 : place + 1 + size].decode())
                place += 1 + size
            key = (".".join(name), int.from_bytes(question[place + 1 : place + 3], "big"))
            self.asked.append(key)
            if self.loses:
                self.loses -= 1
                continue
            code = self._kept.setdefault(key, 0 if key[0] in self.there else 3)
            code = code if self.code is None else self.code
            self._socket.sendto(question[:2] + bytes([0x81, 0x80 | code]) + question[4:], who)

    def close(self) -> None:
        """Stop answering, after reading all questions that were sent before."""
        if self._thread.is_alive():
            self._socket.sendto(b"", self._socket.getsockname())
            self._thread.join()
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Keeping]:
    """Start a name server that answers the pods of a namespace."""
    made = Keeping()
    yield made
    made.close()


@pytest.fixture
def name_resolution(server: Keeping, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return the runtime's module for names, set up as in a pod that uses `server`."""
    monkeypatch.syspath_prepend(str(RUNTIME))
    found = import_module("name_resolution")
    said = tmp_path / "resolv.conf"
    said.write_text(
        "search alice.svc.cluster.local svc.cluster.local cluster.local\n"
        "nameserver 127.0.0.1\noptions ndots:2\n"
    )
    monkeypatch.setattr(found, "RESOLV_CONF", str(said))
    monkeypatch.setattr(found, "DNS_PORT", server.port)
    # The server's answer comes within this timeout even on a busy machine.
    monkeypatch.setattr(found, "DNS_TIMEOUT", PATIENCE)
    monkeypatch.setattr(found, "_understood", {})
    monkeypatch.setattr(found, "_silent", {})
    return found


def test_a_name_is_seen_as_soon_as_it_is_there(
    name_resolution: ModuleType, server: Keeping
) -> None:
    """A new name is found at once although the server caches "no such name", because no address is
    requested before.
    """
    name = f"{NAMES[0]}.alice.svc.cluster.local"
    assert [name_resolution.name_exists(NAMES[0]) for _ in range(3)] == [False] * 3
    server.there.add(name)
    assert any(name_resolution.name_exists(NAMES[0]) for _ in range(3))
    assert {asked for asked, _type in server.asked} == {name, *ALWAYS}
    assert all(kind >= 61440 for _name, kind in server.asked)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5])
def test_a_server_that_does_not_like_the_question_tells_nothing(
    name_resolution: ModuleType, server: Keeping, code: int
) -> None:
    """A server that refuses the question, or denies every name, says nothing about the name, so the
    system's resolver has to be asked.
    """
    server.code = code
    assert name_resolution.name_exists(NAMES[0]) is None
    server.code = None
    assert name_resolution.name_exists(NAMES[0]) is False


def test_nobody_is_asked_of_other_names(
    name_resolution: ModuleType, server: Keeping, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No DNS query is sent for a full name, outside of pods, or without a name server; then it is
    unknown whether the name exists.
    """
    assert name_resolution.name_exists("tasks.example.com") is None
    for text in ("nameserver 127.0.0.1\nsearch example.com\n", "search alice.svc.cluster.local\n"):
        Path(name_resolution.RESOLV_CONF).write_text(text)
        assert name_resolution.name_exists(NAMES[0]) is None
    monkeypatch.setattr(name_resolution, "RESOLV_CONF", str(tmp_path / "none"))
    assert name_resolution.name_exists(NAMES[0]) is None
    assert not server.asked


@pytest.mark.parametrize("understood", [False, True])
def test_a_lost_answer_tells_nothing_yet(
    name_resolution: ModuleType, server: Keeping, monkeypatch: pytest.MonkeyPatch, understood: bool
) -> None:
    """Packets can get lost while a pod's network is set up, so a lost answer is no reason to
    request the address.
    """
    if understood:
        assert name_resolution.name_exists(NAMES[0]) is False
    for _turn in range(2):
        server.loses = 2
        with monkeypatch.context() as silence:
            silence.setattr(name_resolution, "DNS_TIMEOUT", 0.05)
            assert [name_resolution.name_exists(NAMES[0]) for _ in range(2)] == [False] * 2
        assert name_resolution.name_exists(NAMES[0]) is False


@pytest.mark.parametrize("understood", [False, True])
def test_a_silent_server_is_not_asked_for_ever(
    name_resolution: ModuleType, server: Keeping, monkeypatch: pytest.MonkeyPatch, understood: bool
) -> None:
    """After two questions without an answer, the system's resolver is used instead of the silent
    name server, so that hundreds of names do not each cost a timeout.
    """
    if understood:
        assert name_resolution.name_exists(NAMES[0]) is False
    server.loses = 1000
    monkeypatch.setattr(name_resolution, "DNS_TIMEOUT", 0.05)
    said = [name_resolution.name_exists(NAMES[0]) for _ in range(6)]
    assert said == [False, False, None, None, None, None]
    server.close()
    if not understood:
        assert len(server.asked) == name_resolution.DNS_TRIES


@pytest.fixture
def asked(name_resolution: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of names whose addresses the resolver is asked for; the resolver knows all
    names.
    """
    found: list[str] = []

    def addresses(name: str) -> int:
        found.append(name)
        return len(NAMES) if name == "digits-1" else 1

    monkeypatch.setattr(name_resolution, "_addresses", addresses)
    return found


def test_nobody_goes_on_before_names_were_given(
    asked: list[str],
    name_resolution: ModuleType,
    server: Keeping,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that needs no peer starts although some peers have ended and have no name. It waits
    while no task has a name, because an operator that was down creates the names late.
    """
    monkeypatch.setattr(name_resolution, "GO_ON", 0.1)
    said: list[str] = []
    ended = threading.Event()

    def wait() -> None:
        name_resolution.wait_for_names(NAMES, [], 60.0, said.append)
        ended.set()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    wait_until(lambda: len(server.asked) > 20, "it asks again and again")
    assert not ended.is_set()
    server.there |= {f"{each}.alice.svc.cluster.local" for each in (NAMES[0], "digits-1")}
    assert ended.wait(60)
    waiting.join()
    assert "going on without the address of" in said[-1]


def test_addresses_are_asked_for_once_all_names_exist(
    name_resolution: ModuleType, server: Keeping, asked: list[str]
) -> None:
    """Addresses are requested only once all names exist, because a partial answer would be cached,
    too.
    """
    names = name_resolution.UnresolvedNames(NAMES, NAMES)
    for count in range(len(NAMES)):
        server.there |= {f"{each}.alice.svc.cluster.local" for each in NAMES[:count]}
        names.ask(singly=False, every=False)
        assert "digits-1" not in asked
        assert names.missing
    server.there |= {f"{each}.alice.svc.cluster.local" for each in NAMES}
    while names.missing:
        names.ask(singly=False, every=False)
    assert "digits-1" in asked
