"""Uses of the C library in a shared library: its imports, and its system calls by number."""

from __future__ import annotations

import mmap
import platform
import struct
from pathlib import Path
from typing import Any

import numpy as np

SYMBOL = np.dtype([("name", "<u4"), ("rest", "<u2"), ("section", "<u2"), ("value", "<u8", 2)])
RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
CHUNK = 1 << 24


class Library:
    """One ELF file for a 64-bit machine."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert self.bytes[:5] == b"\x7fELF\x02", path
        start, count, names = (
            struct.unpack_from(form, self.bytes, at)[0]
            for form, at in (("<Q", 0x28), ("<H", 0x3C), ("<H", 0x3E))
        )
        # the fields: name, type, flags, address, offset, size, link, info, alignment, entry size
        rows = [struct.unpack_from("<IIQQQQIIQQ", self.bytes, start + 64 * i) for i in range(count)]
        self._sections = {self._text(rows[names][4] + row[0]): row for row in rows}
        self._symbols = self._table(".dynsym", SYMBOL)
        strings = self._sections[".dynstr"][4]
        self.imports = {
            self._text(strings + int(self._symbols["name"][i])): int(i)
            for i in np.nonzero(self._symbols["section"] == 0)[0]
        }

    def _text(self, at: int) -> str:
        return self.bytes[at : self.bytes.find(b"\0", at)].decode()

    def _table(self, section: str, kind: Any) -> Any:
        row = self._sections.get(section)
        size = row[5] // kind.itemsize if row else 0
        return np.frombuffer(self.bytes, kind, size, row[4] if row else 0)

    def slots(self, name: str) -> list[tuple[int, int, int]]:
        """Return the places that hold an import: (address, type of relocation, addend)."""
        tables = [self._table(section, RELOCATION) for section in (".rela.plt", ".rela.dyn")]
        return [
            (int(row["offset"]), int(row["type"]), int(row["addend"]))
            for table in tables
            for row in table[table["symbol"] == self.imports.get(name, -1)]
        ]

    def calls_by_number(self) -> set[int | None]:
        """Return the numbers with which syscall(2) is called; None for a number that is not
        constant.
        """
        assert platform.machine() == "x86_64"
        slots = {address for address, _type, _addend in self.slots("syscall")}
        stubs = {at - back for at, _ in self._jumps(b"\xff\x25", ".plt", slots) for back in (0, 4)}
        sites = [at for kind in (b"\xe8", b"\xe9") for at, _ in self._jumps(kind, ".text", stubs)]
        for kind in (b"\xff\x15", b"\xff\x25"):
            sites += [at for at, _ in self._jumps(kind, ".text", slots)]
        return {self._number(at) for at in sites}

    def raw_calls(self) -> int:
        """Return how often the code has `mov $number, %eax; syscall`, which bypasses the C
        library.
        """
        row = self._sections[".text"]
        count, at = 0, row[4] - 1
        while (at := self.bytes.find(b"\0\0\x0f\x05", at + 1, row[4] + row[5])) >= 0:
            count += self.bytes[at - 3] == 0xB8
        return count

    def _number(self, site: int) -> int | None:
        """Return the last value written to EDI before a call: `mov $number, %edi`."""
        text = self._sections[".text"]
        before = self.bytes[text[4] + site - text[3] - 64 : text[4] + site - text[3]]
        at = before.rfind(b"\xbf")
        while at >= 0 and before[at + 3 : at + 5] != b"\0\0":
            at = before.rfind(b"\xbf", 0, at)
        return struct.unpack_from("<I", before, at + 1)[0] if at >= 0 else None

    def _jumps(self, opcode: bytes, prefix: str, targets: set[int]) -> list[tuple[int, int]]:
        """Return (address, target) of instructions with this opcode that jump to a target."""
        found: list[tuple[int, int]] = []
        for name, row in self._sections.items():
            if not (name == prefix or name.startswith(prefix + ".")) or not targets:
                continue
            for start in range(0, row[5], CHUNK):
                size = min(CHUNK + 8, row[5] - start)
                code = np.frombuffer(self.bytes, "u1", size, row[4] + start)
                last = size - len(opcode) - 4
                at = np.nonzero(code[: last + 1] == opcode[0])[0]
                if len(opcode) == 2:
                    at = at[code[at + 1] == opcode[1]]
                head = at + len(opcode)
                distance = sum(code[head + i].astype("i8") << 8 * i for i in range(4))
                distance = distance - ((distance >> 31) << 32)
                target = row[3] + start + head + 4 + distance
                hits = np.nonzero(np.isin(target, list(targets)))[0]
                found += [(int(row[3] + start + at[i]), int(target[i])) for i in hits]
        return found
