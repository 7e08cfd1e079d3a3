"""Ways in which a state file may be damaged before it is read.

`damage(file, kind, seed)` damages a file; the damage depends only on the seed. `files_of(folder)`
lists every file in a run's folder that the product reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN_FILES = (
    "record.json",
    "status.json",
    "stop.json",
    "annotations.json",
    "task.json",
    "gpus.json",
    "cgroup",
    "control",
    "lock",
    "supervisor.log",
    "decisions.jsonl",
    "tasks/worker-0.log",
    "tasks/worker-0.exit.json",
)
HUGE = 1 << 30
NESTED = 200_000
NUMBERS = ("1e400", "-1e400", "NaN", "Infinity", "1e300", "-1e300", "9" * 400, "1e-400", "-1")
WRONG: tuple[Any, ...] = (None, [], {}, "", "\0", "x", 0, -1, 1.5, True, [[]], {"": {}}, "../../..")
OTHER_OWNER = 65534


def files_of(folder: Path) -> list[Path]:
    """Return every file of a run's folder that the product reads, even if it does not exist."""
    return [folder / name for name in RUN_FILES]


def damage(file: Path, kind: str, seed: int = 0) -> None:
    """Damage `file` in the way of `kind`, one of `KINDS`; `seed` chooses the details."""
    for _ in range(100):  # a supervisor may repair the file meanwhile
        with contextlib.suppress(FileExistsError, FileNotFoundError, NotADirectoryError):
            KINDS[kind](file, random.Random(f"{kind}{file.name}{seed}"))
            return
    raise AssertionError(f"{file} is mended faster than it can be damaged")


def kinds() -> list[str]:
    """Return the kinds of damage that this account can do. Only root can change owners and read all
    files.
    """
    cannot = "unreadable" if os.geteuid() == 0 else "of_another"
    return [kind for kind in KINDS if kind != cannot]


def _text(file: Path) -> bytes:
    """Return the text of a file, if it is a regular file."""
    with contextlib.suppress(OSError):
        if file.is_file() and not file.is_symlink() and file.stat().st_size < 1 << 20:
            return file.read_bytes()
    return b'{"phase": "Running", "reason": "Running", "uid": "x", "at": 1.0, "counts": {}}'


def _clear(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)


def _write(file: Path, content: bytes) -> None:
    _clear(file)
    file.write_bytes(content)


def _empty(file: Path, _chance: random.Random) -> None:
    _write(file, b"")


def _cut(file: Path, chance: random.Random) -> None:
    text = _text(file)
    _write(file, text[: chance.randrange(1, max(2, len(text)))])


def _garbled(file: Path, chance: random.Random) -> None:
    text = bytearray(_text(file) or b"\0")
    for _ in range(max(1, len(text) // 20)):
        text[chance.randrange(len(text))] = chance.randrange(256)
    _write(file, bytes(text))


def _nested(file: Path, chance: random.Random) -> None:
    before, after = chance.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'{"metadata":', b"}")])
    _write(file, before * NESTED + b"1" + after * NESTED)


def _huge(file: Path, _chance: random.Random) -> None:
    text = _text(file)
    _write(file, text)
    os.truncate(file, HUGE)  # zeros that take no disk space


def _pipe(file: Path, _chance: random.Random) -> None:
    _clear(file)
    os.mkfifo(file, 0o600)


def _endless(file: Path, chance: random.Random) -> None:
    _clear(file)
    file.symlink_to(chance.choice(["/dev/zero", "/dev/full", "/dev/tty"]))


def _link(file: Path, _chance: random.Random) -> None:
    """Replace the file by a link to a valid copy elsewhere, which the product must not change."""
    elsewhere = file.parent / f"elsewhere-{file.name}"
    elsewhere.write_bytes(_text(file))
    _clear(file)
    file.symlink_to(elsewhere)


def _dangling(file: Path, _chance: random.Random) -> None:
    _clear(file)
    file.symlink_to(file.parent / "nowhere" / file.name)


def _folder(file: Path, _chance: random.Random) -> None:
    _clear(file)
    file.mkdir()
    (file / "file").write_bytes(b"x")


def _socket(file: Path, _chance: random.Random) -> None:
    _clear(file)
    here = os.open(file.parent, os.O_RDONLY)
    try:  # through /proc, because a socket's path is limited to 107 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{file.name}")
    finally:
        os.close(here)


def _mutate(value: Any, chance: random.Random, into: Callable[[], Any]) -> Any:
    """Return `value` with one of its parts, at any depth, replaced."""
    if not isinstance(value, (dict, list)) or not value or chance.random() < 0.1:
        return into()
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    changed = value.copy()
    changed[key] = _mutate(value[key], chance, into)
    return changed


def _parsed(file: Path) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(_text(file))
    return {}


def _wrong_types(file: Path, chance: random.Random) -> None:
    changed = _mutate(_parsed(file), chance, lambda: chance.choice(WRONG))
    _write(file, json.dumps(changed).encode())


def _numbers(file: Path, chance: random.Random) -> None:
    changed = json.dumps(_mutate(_parsed(file), chance, lambda: "NUMBER"))
    _write(file, changed.replace('"NUMBER"', chance.choice(NUMBERS)).encode())


def _of_another(file: Path, _chance: random.Random) -> None:
    text = _text(file)
    _write(file, text)
    os.chown(file, OTHER_OWNER, OTHER_OWNER)


def _unreadable(file: Path, _chance: random.Random) -> None:
    text = _text(file)
    _write(file, text)
    file.chmod(0)


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "empty": _empty,
    "cut": _cut,
    "garbled": _garbled,
    "nested": _nested,
    "huge": _huge,
    "pipe": _pipe,
    "endless": _endless,
    "link": _link,
    "dangling": _dangling,
    "folder": _folder,
    "socket": _socket,
    "wrong_types": _wrong_types,
    "numbers": _numbers,
    "of_another": _of_another,
    "unreadable": _unreadable,
}
