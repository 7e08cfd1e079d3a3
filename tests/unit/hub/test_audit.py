"""The audit log's file, in which every line is complete and no entry is lost or rewritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfcluster_magic.errors import BackendUnavailable
from tfcluster_magic.hub.audit import AuditLog, new_entry


def noted(log: AuditLog, target: str, result: str | None = "done") -> None:
    """Log one change and its result."""
    made = [new_entry("ada", "stop", "bob", target, "an exam", "127.0.0.1")]
    log.asked(made)
    if result is not None:
        log.ended(made, [result])


def test_a_change_is_one_entry_and_one_that_was_cut_off_is_there(tmp_path: Path) -> None:
    """A finished change is one entry with its result; an unfinished change is shown as `asked`."""
    log = AuditLog(tmp_path / "audit.jsonl")
    noted(log, "digits-1")
    noted(log, "digits-2", None)
    noted(log, "digits-3", "it had ended")

    told = [(one.target, one.result) for one in log.page().items]
    assert told == [("digits-3", "it had ended"), ("digits-2", "asked"), ("digits-1", "done")]
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_pages_show_each_change_once(tmp_path: Path) -> None:
    """Each change is on exactly one page, although it has two lines in the file, which may be in
    different blocks.
    """
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(500):
        noted(log, f"digits-{number}")
    found: list[str] = []
    before = None
    while True:
        page = log.page(7, before)
        found += [one.target for one in page.items]
        if (before := page.next) is None:
            break

    assert found == [f"digits-{number}" for number in reversed(range(500))]


def test_a_line_that_a_full_disk_cut_off_spoils_no_other(tmp_path: Path) -> None:
    """The line after a truncated line is complete."""
    log = AuditLog(tmp_path / "audit.jsonl")
    noted(log, "digits-1")
    with log.path.open("ab") as file:
        file.write(b'{"at": 1, "id": "ha')
    noted(log, "digits-2")

    assert [one.target for one in log.page().items] == ["digits-2", "digits-1"]
    lines = b"".join(log.export()).splitlines()
    assert len(lines) == 5 and json.loads(lines[-1])["target"] == "digits-2"


def test_where_no_line_can_be_written_it_is_refused() -> None:
    """A change is refused if it cannot be logged; /dev/full stands for a full disk."""
    with pytest.raises(
        BackendUnavailable,
        match="nothing was done, because the audit log /dev/full cannot be written",
    ):
        noted(AuditLog(Path("/dev/full")), "digits-1")


def test_a_large_file_gets_a_number_and_pages_and_export_go_on(tmp_path: Path) -> None:
    """A full file is renamed and never rewritten; a page view that started earlier continues."""
    log = AuditLog(tmp_path / "audit.jsonl", largest=2000)
    for number in range(20):
        noted(log, f"digits-{number}")
    first = log.page(5)
    older = {path: path.read_bytes() for path in tmp_path.glob("audit-*.jsonl")}
    for number in range(20, 40):
        noted(log, f"digits-{number}")

    assert len(older) > 1
    assert all(path.read_bytes() == content for path, content in older.items())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.glob("audit*"))
    rest = log.page(1000, first.next)
    assert [one.target for one in rest.items] == [f"digits-{n}" for n in reversed(range(15))]
    assert len(log.page(1000).items) == 40
    lines = [json.loads(line) for line in b"".join(log.export()).splitlines()]
    assert [line["target"] for line in lines[::2]] == [f"digits-{number}" for number in range(40)]
    assert AuditLog(log.path, largest=2000).page(1).items[0].target == "digits-39"


def test_a_line_that_was_cut_off_at_the_end_of_a_file_spoils_no_other(tmp_path: Path) -> None:
    """After a file with a truncated last line, the export has the complete first line of the next
    file.
    """
    log = AuditLog(tmp_path / "audit.jsonl", largest=10)
    noted(log, "digits-1", None)
    with log.path.open("ab") as file:
        file.write(b'{"at": 1, "id": "ha')
    noted(log, "digits-2", None)

    assert [one.target for one in log.page().items] == ["digits-2", "digits-1"]
    assert json.loads(b"".join(log.export()).splitlines()[-1])["target"] == "digits-2"


def test_an_empty_log_has_no_entries(tmp_path: Path) -> None:
    """An empty log has no entries."""
    log = AuditLog(tmp_path / "audit.jsonl")

    assert log.page().items == () and log.page().next is None
    assert b"".join(log.export()) == b""


def test_a_change_whose_result_cannot_be_written_is_not_called_undone(tmp_path: Path) -> None:
    """If the disk fills up between a change and the entry of its result, the error says that the
    change was made.
    """
    log = AuditLog(tmp_path / "audit.jsonl")
    entries = [new_entry("ada", "stop", "bob", "digits-1", "", "127.0.0.1")]
    log.asked(entries)
    log.path.unlink()
    log.path.symlink_to("/dev/full")
    with pytest.raises(BackendUnavailable, match="the action was done, but its result is not in"):
        log.ended(entries, ["done"])
