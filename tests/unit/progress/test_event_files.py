"""The record format of event files that are complete, growing, replaced or damaged."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support import event_writer as ev

from tfcluster_magic.progress.event_files import CHUNK, EventFile
from tfcluster_magic.progress.run_progress import ProgressReader


def seen(path: Path) -> list[int]:
    """Return the steps that a new reader finds in the file."""
    return [event.step for event in EventFile(str(path)).read()]


def test_appended_records_are_read_once(tmp_path: Path) -> None:
    """Each event is returned once, also if its record arrives in pieces."""
    path = ev.event_file(tmp_path)
    whole = ev.version() + b"".join(ev.event(s, {"loss": 1.0}) for s in range(5))
    file, got = EventFile(str(path)), []
    for end in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:end])
        got += [event.step for event in file.read()]
    path.write_bytes(whole)
    got += [event.step for event in file.read()]
    assert got == [0, 1, 2, 3, 4]


def test_both_formats(tmp_path: Path) -> None:
    """Scalars of TensorFlow 1 and 2 are read; text, histograms and other tensors are not."""
    path = ev.event_file(tmp_path)
    path.write_bytes(
        ev.event(1, {"a": 0.5})
        + ev.event(2, {"b": 0.25}, kind=ev.tensor)
        + ev.event(3, {"c": 2.0}, extra=b"png")
        + ev.event(4, extra=b"a histogram alone")
        + ev.event(-1, {"d": 1.0})
    )
    assert [(e.step, e.values) for e in EventFile(str(path)).read()] == [
        (1, {"a": 0.5}),
        (2, {"b": 0.25}),
        (3, {"c": 2.0}),
        (-1, {"d": 1.0}),
    ]


def test_damage_costs_only_the_damaged_record(tmp_path: Path) -> None:
    """After a damaged length, content or checksum, reading continues at the next complete
    record.
    """
    records = [ev.event(s, {"loss": 1.0}) for s in range(4)]
    for at in (0, 5, 9, 14, len(records[1]) - 2):
        damaged = bytearray(records[1])
        damaged[at] ^= 0x55
        path = ev.event_file(tmp_path)
        path.write_bytes(records[0] + bytes(damaged) + records[2] + records[3])
        assert seen(path) == [0, 2, 3], at


def test_first_look_reads_the_tail(tmp_path: Path) -> None:
    """The first read of a large file finds the newest events; later reads continue from these
    events.
    """
    path = ev.event_file(tmp_path)
    old = ev.event(1, {"loss": 1.0}, extra=os.urandom(1000)) * (4 * CHUNK // 1000)
    path.write_bytes(old + ev.event(7, {"loss": 1.0}) + ev.event(8, {"loss": 1.0}))
    file = EventFile(str(path))
    assert [e.step for e in file.read()][-2:] == [7, 8]
    with path.open("ab") as more:
        more.write(ev.event(9, {"loss": 1.0}))
    assert [e.step for e in file.read()] == [9]
    assert file.read() == []


def test_zeros_and_noise_are_no_events(tmp_path: Path) -> None:
    """A file of zeros, of noise or of small numbers gives no event, and the work to read it is
    bounded.
    """
    path = ev.event_file(tmp_path)
    for content in (bytes(CHUNK), os.urandom(CHUNK), (b"\x05" + bytes(7)) * (CHUNK // 8)):
        path.write_bytes(content)
        assert seen(path) == []


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    """A file that became shorter is read from its start."""
    path = ev.event_file(tmp_path)
    path.write_bytes(ev.event(1, {"loss": 1.0}) + ev.event(2, {"loss": 1.0}))
    file = EventFile(str(path))
    file.read()
    path.write_bytes(ev.event(5, {"loss": 1.0}))
    assert [e.step for e in file.read()] == [5]


WRITTEN = range(100, 112)
BODY = ev.version() + b"".join(
    ev.event(s, {"loss": float(s)}, kind=ev.tensor if s % 2 else ev.simple_value) for s in WRITTEN
)
damage = st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), max_size=6)


@settings(max_examples=300, deadline=None)
@given(
    cuts=st.lists(st.integers(0, len(BODY)), max_size=3),
    damage=damage,
    noise=st.binary(max_size=40),
)
def test_no_damage_makes_up_a_step(
    cuts: list[int], damage: list[tuple[int, int]], noise: bytes
) -> None:
    """No truncation, overwriting or insertion causes an error or an invented event."""
    content = bytearray(BODY)
    for at, value in damage:
        content[at] = value
    for cut in cuts:
        content = content[:cut] + noise + content[cut + len(noise) // 2 :]
    with tempfile.TemporaryDirectory() as folder:
        path = ev.event_file(Path(folder))
        file, found = EventFile(str(path)), []
        for end in sorted({*cuts, len(content)}):
            path.write_bytes(content[:end])
            found += file.read()
        reader = ProgressReader(folder)
        now = reader.read()
    assert all(e.step in WRITTEN and e.values == {"loss": float(e.step)} for e in found)
    assert now is None or (now.step in WRITTEN and now.loss in WRITTEN)


@given(st.binary(max_size=200))
def test_well_framed_nonsense_is_passed_over(content: bytes) -> None:
    """A record with correct checksums whose content is not an Event is skipped."""
    with tempfile.TemporaryDirectory() as folder:
        path = ev.event_file(Path(folder))
        path.write_bytes(ev.record(content) + ev.event(3, {"loss": 0.5}, wall=4e9))
        assert EventFile(str(path)).read()[-1].step == 3
        ProgressReader(folder).read()
