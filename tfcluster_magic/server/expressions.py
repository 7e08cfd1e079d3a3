"""Regular expressions in JavaScript's syntax, matched against lines as the page matches them.

The page uses JavaScript's expressions with flag `u`. `python_source` translates them, and refuses
expressions without an equivalent in Python. Matching could take forever and block the server's
threads, so each search has its own process with a CPU time limit. This file is also that process's
program and imports only the standard library.
"""

from __future__ import annotations

import json
import re
import resource
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import IO

MOST_SOURCE = 1000
"""Maximum characters of an expression."""
CPU_SECONDS = 1.0
"""Maximum CPU seconds for compiling the expression, and for each batch of lines."""
MOST_CPU_SECONDS = 600
"""Maximum CPU seconds for all lines of a search."""
MOST_MEMORY = 512 << 20
LOOK_UP = 0.3
"""Interval in seconds at which `Matcher.matches` yields None while it waits, so that its caller can
stop waiting.
"""
_FRAME = struct.Struct(">I")


class ExpressionRefused(Exception):
    """The expression is invalid or not supported. The message is the unsupported part, or the
    error.
    """


class TooSlow(Exception):
    """Matching took too much time or memory."""


# -- from JavaScript to Python ---------------------------------------------------------------------

_SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SETS = {
    "d": "0-9",
    "D": r"\x00-/:-\U0010ffff",
    "w": "0-9A-Z_a-z",
    "W": r"\x00-/:-@\x5b-\x5e`\x7b-\U0010ffff",
    "s": _SPACE,
    "S": r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e"
    r"\u2030-\u205e\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff",
}
"""JavaScript's character classes; Python's include more characters."""
_WORD = f"[{_SETS['w']}]"
_BOUNDARY = f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"
_NO_BOUNDARY = f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))"
_PLAIN = {
    "^": r"\A",
    "$": r"\Z",
    ".": r"[^\n\r\u2028\u2029]",
    "|": "|",
    "(": "(",
    ")": ")",
    r"\b": _BOUNDARY,
    r"\B": _NO_BOUNDARY,
    **{f"\\{letter}": f"[{content}]" for letter, content in _SETS.items()},
}
_CONTROLS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_SYNTAX = r"^$\.*+?()[]{}|/"
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_GROUP = re.compile(r"\(\?(?:[:=!]|<[=!])")
_NAMED = re.compile(r"\(\?<([A-Za-z_][A-Za-z0-9_]*)>")
_REFERENCE = re.compile(r"\\(?:([1-9][0-9]*)|k<([A-Za-z_][A-Za-z0-9_]*)>)")
_CODE = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]+)\}|u([Dd][89ABab][0-9A-Fa-f]{2})\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})"
    r"|(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))|c([A-Za-z]))"
)


def python_source(source: str) -> str:
    """Return an expression that means to Python's `re` what `source` means to JavaScript.

    Raises:
        ExpressionRefused: it is invalid, or Python has no equivalent for a part of it.
    """
    made: list[str] = []
    at, is_quantified = 0, False
    while at < len(source):
        quantifier = _QUANTIFIER.match(source, at)
        if quantifier and is_quantified:  # `a*+` is valid only in Python
            raise ExpressionRefused(quantifier[0])
        is_quantified = quantifier is not None
        if found := quantifier or _GROUP.match(source, at):
            made.append(found[0])
        elif found := _NAMED.match(source, at):
            made.append(f"(?P<{found[1]}>")
        elif found := _REFERENCE.match(source, at):
            number, name = found.groups()
            # In JavaScript, a reference to a group that did not participate matches the empty text.
            made.append(f"(?({number})\\{number})" if number else f"(?({name})(?P={name}))")
        else:
            text, at = _one(source, at)
            made.append(text)
            continue
        at = found.end()
    return "".join(made)


def _one(source: str, at: int) -> tuple[str, int]:
    """Translate one character, class or other element; return the result and the next index."""
    if source[at] == "[":
        return _character_class(source, at)
    if source.startswith("(?", at):
        raise ExpressionRefused(source[at : at + 4])
    for length in (1, 2):
        if text := _PLAIN.get(source[at : at + length]):
            return text, at + length
    if source[at] in "]{}":
        raise ExpressionRefused(source[at])
    character, end = _character(source, at)
    return _literal(character), end


def _character_class(source: str, at: int) -> tuple[str, int]:
    """Translate the character class that begins at `at`; return the result and the next index."""
    begin = at
    is_negated = source.startswith("^", at + 1)
    at += 2 if is_negated else 1
    parts: list[str] = []
    while not source.startswith("]", at):
        if at >= len(source):
            raise ExpressionRefused(source[begin:])
        if source[at] == "\\" and source[at + 1 : at + 2] in _SETS:
            parts.append(_SETS[source[at + 1]])
            at += 2
            continue
        first, at = _class_character(source, at)
        if source.startswith("-", at) and not source.startswith("-]", at) and at + 1 < len(source):
            last, at = _class_character(source, at + 1)
            parts.append(f"{_literal(first)}-{_literal(last)}")
        else:
            parts.append(_literal(first))
    if not parts:
        return "(?s:.)" if is_negated else "(?!)", at + 1
    return f"[{'^' if is_negated else ''}{''.join(parts)}]", at + 1


def _class_character(source: str, at: int) -> tuple[str, int]:
    for text, character in ((r"\b", "\b"), (r"\-", "-")):
        if source.startswith(text, at):
            return character, at + len(text)
    return _character(source, at)


def _character(source: str, at: int) -> tuple[str, int]:
    """Return the character written at `at`, and the index after it."""
    if source[at] != "\\":
        return source[at], at + 1
    if found := _CODE.match(source, at):
        code, high, low, short, byte, control = found.groups()
        if high:
            number = 0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00
        elif control:
            number = ord(control) % 32
        else:
            number = int(code or short or byte, 16)
        if number <= sys.maxunicode:
            return chr(number), found.end()
    escaped = source[at + 1 : at + 2]
    if escaped == "0" and source[at + 2 : at + 3].isdigit():  # a legacy octal escape
        raise ExpressionRefused(source[at : at + 3])
    if escaped in _CONTROLS:
        return _CONTROLS[escaped], at + 2
    if not escaped or escaped not in _SYNTAX:
        raise ExpressionRefused(source[at : at + 2])
    return escaped, at + 2


def _literal(character: str) -> str:
    """Return the character escaped for `re`, inside or outside a class."""
    is_plain = character.isascii() and character.isalnum()
    return character if is_plain else f"\\U{ord(character):08x}"


# -- the matching process --------------------------------------------------------------------------


class Matcher:
    """A process that matches lines against an expression, until it is closed.

    Args:
        source: a JavaScript expression.
        case: whether upper and lower case differ.

    Raises:
        ExpressionRefused: the expression is invalid, or Python has no equivalent.
        TooSlow: compiling it took more than `CPU_SECONDS`.
    """

    def __init__(self, source: str, case: bool) -> None:
        if len(source) > MOST_SOURCE:
            raise ExpressionRefused(f"{source[:20]}…")
        first = json.dumps([python_source(source), case]).encode()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        try:
            if error := next(answer for answer in self._ask(first) if answer is not None):
                raise ExpressionRefused(error.decode())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        with self._process:  # closes its pipes and waits for it
            pass

    def matches(self, lines: Sequence[str]) -> Iterator[Sequence[bool] | None]:
        """Yield `None` repeatedly while the process is at work, then a list with a boolean for each
        line: whether the line matches.

        Raises:
            TooSlow: matching took more than `CPU_SECONDS`.
        """
        if not lines:
            return
        text = "\n".join(line.replace("\n", " ") for line in lines)
        for answer in self._ask(text.encode("utf-8", "replace")):
            yield None if answer is None else [bool(each) for each in answer]

    def _ask(self, frame: bytes) -> Iterator[bytes | None]:
        answers, questions = self._process.stdout, self._process.stdin
        assert answers is not None
        assert questions is not None
        poll = select.poll()
        poll.register(answers, select.POLLIN)
        try:
            _write(questions, frame)
            while not poll.poll(LOOK_UP * 1000):
                yield None
            answer = _read(answers)
        except OSError:
            answer = None
        if answer is None:
            raise TooSlow
        yield answer


def _write(pipe: IO[bytes], frame: bytes) -> None:
    left = memoryview(_FRAME.pack(len(frame)) + frame)
    while left:
        left = left[pipe.write(left) :]
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return the content of the next frame; None if the pipe was closed before or within it."""
    head = _exactly(pipe, _FRAME.size)
    return None if head is None else _exactly(pipe, _FRAME.unpack(head)[0])


def _exactly(pipe: IO[bytes], size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        if not (piece := pipe.read(size - len(data))):
            return None
        data += piece
    return data


def is_match(expression: re.Pattern[str], text: str) -> bool:
    """Return whether the text has a non-empty match. After an empty match, the search continues at
    the next character, as the search on the logs page does.
    """
    at = 0
    while found := expression.search(text, at):
        if found.end() > found.start():
            return True
        at = found.end() + 1
        if at > len(text):
            break
    return False


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Read an expression, then batches of lines until the pipe is closed, and write which lines
    match. Linux kills a process that uses too much CPU time.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_SECONDS, MOST_CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    first = _read(questions)
    if first is None:
        return
    source, case = json.loads(first)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        expression = re.compile(source, 0 if case else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        _write(answers, str(error).encode())
        return
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    _write(answers, b"")
    while (frame := _read(questions)) is not None:
        lines = frame.decode().split("\n")
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
        found = bytes(is_match(expression, line) for line in lines)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        _write(answers, found)


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
