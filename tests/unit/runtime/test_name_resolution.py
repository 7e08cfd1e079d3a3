"""How a task asks whether its peers have names: so that no name server keeps that they do not."""

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
    """A name server that keeps whatever it said of a name and a type, as CoreDNS does for a while;
    `there` are the names that exist by now.
    """

    def __init__(self) -> None:
        self.there = set(ALWAYS)
        self.code: int | None = None
        """What it says of everything."""
        self.loses = 0
        """How many questions it does not answer from now on."""
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
        """Answer no more; all that was sent before has been read then."""
        if self._thread.is_alive():
            self._socket.sendto(b"", self._socket.getsockname())
            self._thread.join()
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Keeping]:
    """A name server for the pod of a namespace."""
    made = Keeping()
    yield made
    made.close()


@pytest.fixture
def name_resolution(server: Keeping, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """What asks, in that pod."""
    monkeypatch.syspath_prepend(str(RUNTIME))
    found = import_module("name_resolution")
    said = tmp_path / "resolv.conf"
    said.write_text(
        "search alice.svc.cluster.local svc.cluster.local cluster.local\n"
        "nameserver 127.0.0.1\noptions ndots:2\n"
    )
    monkeypatch.setattr(found, "RESOLV_CONF", str(said))
    monkeypatch.setattr(found, "DNS_PORT", server.port)
    # An answer comes however busy this machine is; what is lost is not waited for that long.
    monkeypatch.setattr(found, "DNS_TIMEOUT", PATIENCE)
    monkeypatch.setattr(found, "_understood", {})
    monkeypatch.setattr(found, "_silent", {})
    return found


def test_a_name_is_seen_as_soon_as_it_is_there(
    name_resolution: ModuleType, server: Keeping
) -> None:
    """Though the server keeps each "no such name" for ever; and nobody's address is asked for."""
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
    """Then the resolver has to find out; also where it denies what every cluster has."""
    server.code = code
    assert name_resolution.name_exists(NAMES[0]) is None
    server.code = None
    assert name_resolution.name_exists(NAMES[0]) is False


def test_nobody_is_asked_of_other_names(
    name_resolution: ModuleType, server: Keeping, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of whole names, and outside of pods; a server that is not there tells nothing."""
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
    """Packets get lost while a pod's network is made: that a name is not known to be missing is no
    reason to ask for its address.
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
    """The resolver finds out itself, and of hundreds of names not each costs the time of one."""
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
    """The names whose addresses the resolver was asked for; it knows them all."""
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
    """A program that needs no peer goes on without those that have ended, not before anybody has a
    name: an operator that is away gives them late.
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
    """An answer that lacks some would be kept, too."""
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
