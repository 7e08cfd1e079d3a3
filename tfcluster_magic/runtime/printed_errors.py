"""Search for errors in a program's output. For each error, its message and the line of the user's
code are found.

The end of the output is kept in memory. Patterns recognize tracebacks (chained, grouped, or one
inside the message of another), text that TensorFlow and Keras add to messages, crashes of native
code, and errors of shells and command lines. They also recognize whether a task failed because it
lost another task. Exit codes are judged by `exit_report`. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import re

from tensorflow_log import TensorFlowLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# ---- the end of the output ----


TAIL_BYTES = 64 * 1024
MAX_LINES = 20
MAX_CHARS = 500
MAX_ERROR = 300
# A shell script may succeed although a command failed, because a pipe hid the exit code. This is
# assumed if at most this many lines follow the last error, because they may belong to the error's
# message, or be the script's last lines. After more lines, the script has continued on purpose.
MORE_LINES = 3
# Maximum bytes kept of an error that a thread or a child process printed long before the end.
ASIDE_BYTES = 8 * 1024
ASIDE = re.compile(rb"^(?:Exception in thread |Process [^\n:]*:$)", re.MULTILINE)
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# The part of a line that a progress bar overwrites: up to the last \r or run of backspaces.
OVERWRITTEN = re.compile(r"\r|\x08+")
# The start of a log line and its level, in one of these formats:
#   2024-05-01 10:00:00.123456: I tensorflow/...     TensorFlow
#   I0000 00:00:1714550400.123456   42 file.cc:1]    absl
#   WARNING:tensorflow:...                           Python's logging
LOG = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) |([IWEF])\d{4} \d\d:\d\d:"
    r"|(I)NFO:|(W)ARNING:|(E)RROR:"
)
NOISE = re.compile(
    r"WARNING: All log messages before absl|To enable the following instructions:"
    r"|Additional GRPC error information from remote target|:UNKNOWN:Error received from peer"
    r"|\*\*\*(?: |$)|Extension modules: |\s+@\s+0x|PC: @ "
)
LOST_PEER = re.compile(
    r"\bUNAVAILABLE\b|\bABORTED\b|UnavailableError|AbortedError|[Hh]eartbeat|[Ss]ocket closed"
    r"|[Cc]onnection (?:reset|refused)|Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError"
    r"|[Cc]oordination ?[Ss]ervice|failed to connect to all addresses|GOAWAY|recvmsg:"
    r"|Collective ops is aborted by"
)


class LastLines:
    """A buffer of the unchanged end of the output, which is parsed only by `report`."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._cut = False
        self._aside = b""

    def put(self, data: bytes) -> None:
        """Append the next piece of output."""
        self._tail += data
        if len(self._tail) > 2 * TAIL_BYTES:
            end = len(self._tail) - TAIL_BYTES
            if not self._aside and (found := ASIDE.search(self._tail, 0, end)):
                self._aside = bytes(self._tail[found.start() : found.start() + ASIDE_BYTES])
            del self._tail[:end]
            self._cut = True

    @property
    def tail(self) -> bytes:
        """Return the end of the output, unchanged."""
        return bytes(self._tail)

    def report(self, cause: str, crashed: bool, shell: bool, folder: str) -> dict[str, Any]:
        """Return the fields of a TaskExit that the output shows.

        Args:
            cause: the cause of the exit, such as "Error" or "Completed".
            crashed: whether the program was ended by a signal that it raised itself.
            shell: whether a shell ran the program; a shell ignores the exit codes of all commands
                of a pipe but the last.
            folder: the program's folder; paths of the user's own files are shown relative to it.
        """
        lines = _shown_lines(bytes(self._tail), self._cut)
        errors = find_errors(lines, folder)
        told: dict[str, Any] = {"follows": False, "lastLines": _last(lines, None)}
        if cause == "Error":
            error = _cause_of_end(errors, crashed)
            told["lastLines"] = _last(lines, error)
            # If native code crashed, only its own lines about the crash count.
            rest = [] if crashed else lines[-MAX_LINES:]
            said = error.raw if error and (crashed or error.kind == MAIN) else rest
            told["follows"] = any(LOST_PEER.search(line) for line in said)
            if error:
                told.update(error.fields())
            elif not crashed:
                told["error"] = _last_words(lines, errors)
        elif cause == "Completed":
            aside = find_errors(_shown_lines(self._aside, False), folder) + errors
            found = next((each for each in aside if each.kind in (THREAD, PROCESS)), None)
            if found:
                told.update(found.fields(), hidden=found.kind)
            elif shell and (last := _cause_of_end(errors, False)) and not _went_on(lines, last):
                told.update(last.fields(), hidden="pipe")
        return told


def _shown_lines(data: bytes, cut: bool) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    if cut and len(lines) > 1:
        del lines[0]
    log = TensorFlowLog()
    # the first line of a message of TensorFlow may name a lost peer; a protobuf after it does not
    kept = (shown for shown in map(_shown, lines) if not log.hides(shown) or _level(shown))
    return [shown for shown in kept if shown]


def _shown(line: str) -> str:
    parts = [part for part in OVERWRITTEN.split(ANSI.sub("", line)) if part.strip()]
    return "".join(c for c in parts[-1].rstrip() if c == "\t" or c.isprintable()) if parts else ""


def _last(lines: list[str], error: PrintedError | None) -> list[str]:
    """Return the last lines without noise, at most 20; if `error` ended the program, the lines up
    to its end. If the error's message is longer, its first line is returned, too, because that line
    names the exception.
    """
    end = error.end if error and error.kind == MAIN else len(lines)
    head = [line for line in lines[:end] if not _is_noise(line)] or lines
    chosen = head[-MAX_LINES:]
    if error and error.kind == MAIN and end - error.said_at > MAX_LINES:
        chosen[:2] = [lines[error.said_at], "…"]
    return [_short(line, MAX_CHARS) for line in chosen]


def _went_on(lines: list[str], error: PrintedError) -> bool:
    """Return whether the program continued after an error: more than MORE_LINES lines follow it
    that are not part of a traceback or of TensorFlow's notes.
    """
    plain = [n for n in lines[error.said_at + 1 :] if not (_is_noise(n) or n[0] in " \t|")]
    return sum(not (DECORATION.match(line) or FRAME.match(line)) for line in plain) > MORE_LINES


def _last_words(lines: list[str], errors: list[PrintedError]) -> str:
    """Return the last line that is neither a log line nor part of one of these errors."""
    aside = {n for each in errors for n in range(each.start, each.end)}
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if number not in aside and not (_is_noise(line) or _level(line)) and TRACEBACK not in line:
            return _short(line.strip(), MAX_ERROR)
    return ""


def _short(line: str, most: int) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"


def _level(line: str) -> str:
    match = LOG.match(line)
    return next(filter(None, match.groups())) if match else ""


def _is_noise(line: str) -> bool:
    return _level(line) in ("I", "W") or NOISE.match(line) is not None


# ---- errors, in order ----


TRACEBACK = "Traceback (most recent call last)"
# Kinds of errors: errors that ended the program, a thread or a child process, and errors that ended
# nothing.
MAIN, THREAD, PROCESS, ASIDE_KIND = "main", "thread", "process", "aside"
CRASH = "crash"
# The logged reason why a ClusterCoordinator cancelled the work of its workers. The exception of the
# program says only that the work was cancelled.
CANCELLED = "cancelled"
CANCELLING = re.compile(r"ERROR:tensorflow:Start cancelling closures due to error (\w+)\(\): (.*)$")
CHAIN = re.compile(
    r"During handling of the above exception, another|The above exception was the direct cause of"
)
# A line before a traceback that says which thread or process it belongs to.
OWNERS = (
    (re.compile(r"Exception in thread "), THREAD),
    (re.compile(r"Process [^:]*:$"), PROCESS),
    (
        re.compile(
            r"Exception ignored |--- Logging error ---|Error in (?:atexit|sys\.excepthook)"
            r"|(?:Task|Future) exception was never retrieved|Exception in callback |future: <"
        ),
        ASIDE_KIND,
    ),
)
FRAME = re.compile(r"""[\s│|>]*(?:File )?"(?P<file>[^"]+)", line (?P<line>\d+)(?:, in .*)?""")
BOXED_FRAME = re.compile(r"│\s*(?P<file>[^\s:│]+):(?P<line>\d+) in ")
EXCEPTION = re.compile(r"\s*(?P<name>[A-Za-z_][\w.<>]*)(?::\s?(?P<said>.*))?$")
# Files that are not the user's own: files of Python and of packages, and generated code.
NOT_THE_USERS = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<|/__autograph_generated_file|\.zip/"
    r"|^/proc/|/tfcluster_magic/runtime/"
)
SYNTAX = re.compile(r"(?:Syntax|Indentation|Tab)Error: ")
SHELL = re.compile(
    r"(?P<file>[\w./+~-]+): (?:line )?(?P<line>\d+): (?:[\w./]*: line \d+: )?(?P<said>.*)$"
)
SHELL_NAMES = re.compile(r"\.(?:sh|bash|ksh)$|(?:^|/)(?:ba|da|z|k)?sh$|^environment$")
NO_ERROR_OF_SHELL = re.compile(r"`|warning: |\d+ (?:Killed|Terminated)\b")
USAGE = re.compile(
    r"[\w./-]+: error: |Error: (?:No such|Missing|Invalid|Got unexpected)|"
    r"\S*python[\d.]*: (?:can't open file|No module named|Error while finding module)"
)
FLAGS = re.compile(r"FATAL Flags parsing error:(?P<said>.*)$")
ALLOCATOR = re.compile(
    r"^(?:\*\*\* Error in .*: )?(?:(?:free|malloc|realloc|munmap_chunk|tcache_\w+)\(\): "
    r"|double free or corruption|corrupted (?:size|double-linked)|malloc_consolidate\(\)"
    r"|\*\*\* (?:stack smashing|buffer overflow) detected)"
)
TERMINATE = re.compile(r"terminate called (?:after throwing an instance of '(?P<name>.+)'|.+)$")
ASSERTION = re.compile(r"\S+: .+:\d+: .+: Assertion [`'].+' failed\.?$")
FATAL = re.compile(r"Fatal Python error: (?P<said>.+)$")
STACK = re.compile(r"(?:Current thread|Thread) 0x\w+ .*\(most recent call first\):$")


class PrintedError:
    """One error in the output.

    `kind` says what the error ended. `start`, `end` and `said_at` are line numbers: of its first
    line, of the line after its last, and of the line that names the exception. `error` is the text
    of the error for users, and `origin` that of the error which led to it. `place` is the file and
    line in the user's code. `raw` has the error's message as it was printed.
    """

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind
        self.start = self.said_at = start
        self.end = start + 1
        self.raw: list[str] = []
        self.error = self.origin = ""
        self.place: tuple[str, int] | None = None

    def fields(self) -> dict[str, Any]:
        """Return the error as fields of a TaskExit."""
        found: dict[str, Any] = {"error": _short(self.error, MAX_ERROR)}
        if self.place:
            found.update(file=_short(self.place[0], 200), line=self.place[1])
        said, before = (text.partition(": ")[2] for text in (self.error, self.origin))
        # leave out an origin that was raised again as another type with the same message
        if self.origin not in ("", self.error) and (not before or before != said):
            found["origin"] = _short(self.origin, MAX_ERROR)
        return found


def find_errors(lines: list[str], folder: str = "") -> list[PrintedError]:
    """Return every error in lines of output, in order; `folder` is the program's folder."""
    found: list[PrintedError] = []
    number = 0
    while number < len(lines):
        read = (
            _traceback(lines, number, folder, found)
            or _cancelled(lines, number, folder)
            or _syntax_error(lines, number, folder)
            or _crash(lines, number, folder)
            or _command_line(lines, number, folder)
        )
        if read is None:
            number += 1
            continue
        found.append(read)
        number = max(read.end, number + 1)
    return found


def _cause_of_end(errors: list[PrintedError], crashed: bool) -> PrintedError | None:
    """Return the error that ended a program; None if there is none among `errors`."""
    ends = [each for each in errors if each.kind in (MAIN, CRASH)]
    if crashed and (crashes := [each for each in ends if each.kind == CRASH]):
        first = crashes[0]
        # Native code may also crash when the program ends after an exception. Then return the
        # exception.
        before = [each for each in ends if each.kind == MAIN and each.end >= first.start - 1]
        return before[0] if before and before[0].start < first.start else first
    why = [each for each in errors if each.kind == CANCELLED]
    if ends and why and ends[-1].error.startswith("CancelledError"):
        ends[-1].error, ends[-1].place = why[-1].error, why[-1].place or ends[-1].place
    if not ends:
        ends = [each for each in errors if each.kind in (THREAD, PROCESS)]
    return ends[-1] if ends else None


def _place(frames: list[tuple[str, int]], folder: str) -> tuple[str, int] | None:
    """Return (file, line) of the last frame in the user's code; a file in the program's folder is
    relative to `folder`.
    """
    for file, line in reversed(frames):
        if not NOT_THE_USERS.search(file):
            own = folder.rstrip("/") + "/"
            return (file[len(own) :] if folder and file.startswith(own) else file), line
    return None


def _frames(lines: list[str]) -> list[tuple[str, int]]:
    matches = (FRAME.match(line) or BOXED_FRAME.match(line) for line in lines)
    return [(match["file"], int(match["line"])) for match in matches if match]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# ---- tracebacks ----


def _traceback(
    lines: list[str], number: int, folder: str, before: list[PrintedError]
) -> PrintedError | None:
    if TRACEBACK not in lines[number]:
        return None
    if "Exception Group" in lines[number]:
        return _group(lines, number, folder)
    return _plain(lines, number, folder, before)


def _plain(
    lines: list[str], number: int, folder: str, before: list[PrintedError]
) -> PrintedError | None:
    """Read one traceback at line `number`: frames, then the exception with its message. The message
    ends before the first line that begins something else.
    """
    boxed = "─" in lines[number]
    depth = 0 if boxed else _indent(lines[number])
    at = number + 1
    while at < len(lines) and (
        lines[at][0] in "│╰" if boxed else _indent(lines[at]) > depth or _level(lines[at])
    ):
        at += 1
    if at >= len(lines):
        return None
    read = PrintedError(_owner(lines, number), number)
    read.said_at, read.end = at, at + 1
    while read.end < len(lines) and not _begins_another(lines, read.end):
        read.end += 1
    if TRACEBACK in lines[at]:  # the message has another traceback, whose exception says more
        read.end = at
        read.raw = [lines[at].replace(TRACEBACK + ":", "")]
    else:
        read.raw = lines[at : read.end]
    read.error = describe(read.raw)
    read.place = _place(_frames(lines[number : read.end]), folder)
    last = before[-1] if before else None
    if last and last.end == number and last.kind not in (THREAD, PROCESS, ASIDE_KIND):
        # This traceback is inside the message of the previous one, as in errors of tf.data.
        read.place = read.place or last.place
        read.raw = last.raw + read.raw
        read.start = last.start
    elif last and CHAIN.match(lines[number - 1].lstrip("| ")) and last.end >= number - 1:
        read.origin = last.origin or last.error
        read.start, read.kind = last.start, last.kind
        if read.origin == read.error:
            # A process pool, for example, raises the error of a worker again. Then the place of the
            # first traceback counts, because there the error occurred.
            read.place = last.place or read.place
    return read


def _owner(lines: list[str], number: int) -> str:
    for line in lines[max(0, number - 2) : number]:
        for pattern, kind in OWNERS:
            if pattern.match(line):
                return kind
    return MAIN


def _begins_another(lines: list[str], number: int) -> bool:
    """Return whether line `number` cannot belong to the message of an exception above it."""
    line = lines[number]
    return bool(
        _level(line)
        or TRACEBACK in line
        or CHAIN.match(line)
        or any(pattern.match(line) for pattern, _kind in OWNERS)
        or FATAL.match(line)
        or TERMINATE.match(line)
        or ALLOCATOR.match(line)
        or _shell(line)
        or USAGE.match(line)
    )


def _group(lines: list[str], number: int, folder: str) -> PrintedError:
    """Read an ExceptionGroup: return the first exception in it that is not a group itself."""
    read = PrintedError(_owner(lines, number), number)
    at = number + 1
    parts: list[list[str]] = [[]]
    while at < len(lines) and re.match(r"\s*[|+]", lines[at]):
        if re.match(r"\s*\+[-+]", lines[at]):
            parts.append([])
        else:
            parts[-1].append(re.sub(r"^\s*[|+] ?", "", lines[at]))
        at += 1
    read.end = at
    exceptions = []
    for part in parts:
        start = next((n for n, line in enumerate(part) if TRACEBACK in line), -1)
        said = next((n for n in range(start + 1, len(part)) if part[n][0] not in " \t"), None)
        if said is not None:
            exceptions.append((describe(part[said:]), _place(_frames(part), folder), part[said:]))
    plain = [each for each in exceptions if "sub-exception" not in each[0]] or exceptions
    if plain:
        read.error, read.place, read.raw = plain[0]
    return read


# Text that TensorFlow and Keras add to a message. DECORATION matches whole lines, REST the
# beginning of text below the message, and the patterns between them match parts of lines.
DECORATION = re.compile(
    r"Graph execution error:?$|Detected at node|<stack traces unavailable>$|Node: '"
    r"|\d+ root error\(s\) found|\d+ (?:successful operations|derived errors ignored)"
    r"|Exception encountered when calling|Could not automatically infer the output shape.*:$"
    r"|in user code:$|Hint: If you want to see a list of alloc"
    r"|This isn't available when running in Eager|The error could be from a previous operation"
    r"|Additional GRPC error information|:?\{\"created\"|:UNKNOWN:Error received|\"\"\"$|~+$|\^+$"
    r"|[\w.]+ -> [\w.]+$|Caught \w+ in DataLoader worker"
)
ATTACHED = re.compile(
    r"\{\{function_node [^}]*\}\} ?|\[\[\{\{.*|\[\[node .*|\[\[Node: .*|\[\[[\w/.:]+\]\]"
    r"|\[Op:\w+\](?: name: ?\S*)?|\(see above for traceback\):? ?|^\[_Derived_\]"
    r"|\(defined at [^)]*\) ?"
)
NUMBERED = re.compile(r"^\(\d+\)\s+")
STATUS_CODE = re.compile(r"^(?:[A-Z][A-Z_]{4,}|[A-Z][a-z]+(?: [a-z]+)?): +(?=\S)")
REST = re.compile(
    r"Original stack trace for|Call arguments received by|Function call stack:"
    r"|Errors may have originated|Input Source operations|Arguments received by"
)


def describe(raw: list[str]) -> str:
    """Return the name and the message of an exception, without the text that TensorFlow and Keras
    add.

    An example is `InvalidArgumentError: indices[0] = 5 is not in [0, 3)`.
    """
    match = EXCEPTION.match(raw[0]) if raw else None
    if match is None:
        return raw[0].strip() if raw else ""
    name, said = match["name"].rpartition(".")[2], match["said"] or ""
    words: list[str] = []
    frame = -1
    for line in [said, *raw[1:]]:
        if FRAME.match(line):
            frame = _indent(line)
            continue
        if frame >= 0 and _indent(line) > frame:
            continue  # the line of source code below a frame
        frame = -1
        text = ATTACHED.sub("", line).strip()
        text, numbers = NUMBERED.subn("", text)
        if numbers:
            text = STATUS_CODE.sub("", text)
        if REST.match(text):
            break
        if not text or DECORATION.match(text):
            continue
        inner = EXCEPTION.match(text)
        if not words and inner and inner["said"] and _names_exception(inner["name"]):
            name, text = inner["name"].rpartition(".")[2], inner["said"]
        words.append(f"{text}…" if text.endswith(("(", "[", "{")) else text)
        if not text.endswith(":"):
            break
    return f"{name}: {' '.join(words)}" if words else name


def _names_exception(name: str) -> bool:
    return name.endswith(("Error", "Exception", "Interrupt", "Warning"))


# ---- errors without a traceback ----


def _cancelled(lines: list[str], number: int, folder: str) -> PrintedError | None:
    """Read the log line in which a ClusterCoordinator says why it cancelled all work."""
    match = CANCELLING.match(lines[number])
    if match is None:
        return None
    read = PrintedError(CANCELLED, number)
    while read.end < len(lines) and not _begins_another(lines, read.end):
        read.end += 1
    read.raw = [f"{match[1]}: {match[2]}", *lines[number + 1 : read.end]]
    read.error, read.place = describe(read.raw), _place(_frames(read.raw), folder)
    return read


def _syntax_error(lines: list[str], number: int, folder: str) -> PrintedError | None:
    """Read the error about a file that Python cannot parse. Such an error has no "Traceback …"."""
    match = FRAME.match(lines[number])
    if match is None:
        return None
    for at in range(number + 1, min(number + 5, len(lines))):
        if SYNTAX.match(lines[at]):
            read = PrintedError(MAIN, number)
            read.said_at, read.end = at, at + 1
            read.raw, read.error = [lines[at]], lines[at].strip()
            read.place = _place([(match["file"], int(match["line"]))], folder)
            return read
    return None


def _crash(lines: list[str], number: int, folder: str) -> PrintedError | None:
    """Read the lines that native code prints when it crashes: those of a failed check, of the
    memory allocator, of C++, or of Python's fault handler.
    """
    line = lines[number]
    said = ""
    if _level(line) == "F":
        said = line.partition("] ")[2] or line
    elif ALLOCATOR.match(line):
        said = re.sub(r"^\*\*\* Error in .*?: |^\*\*\* | \*\*\*.*$|: terminated$", "", line)
    elif match := TERMINATE.match(line):
        said = match["name"] or line
        if number + 1 < len(lines) and lines[number + 1].strip().startswith("what():"):
            what = lines[number + 1].partition("what():")[2].strip()
            said += f": {what}" if what != said else ""
    elif ASSERTION.match(line):
        said = line
    elif match := FATAL.match(line):
        said = match["said"]
    if not said:
        return None
    read = PrintedError(CRASH, number)
    read.raw, read.error = [line], said.strip()
    return _with_stacks(read, lines, folder)


def _with_stacks(read: PrintedError, lines: list[str], folder: str) -> PrintedError:
    """Add to a crash the place in the user's code, from the stacks that Python's fault handler
    prints below it.
    """
    at, current = read.end, False
    own: list[tuple[str, int]] = []
    others: list[tuple[str, int]] = []
    while at < len(lines):
        line = lines[at]
        if STACK.match(line):
            current = line.startswith("Current")
        elif match := FRAME.match(line):
            (own if current else others).append((match["file"], int(match["line"])))
        elif not (
            line.startswith((" ", "\t", "Extension modules"))
            or FATAL.match(line)
            or (_is_noise(line) and not TERMINATE.match(line))
        ):
            break
        at += 1
    read.end = at
    read.place = _place(own[::-1], folder) or _place(others[::-1], folder)
    return read


def _shell(line: str) -> re.Match[str] | None:
    match = SHELL.match(line)
    if match is None or not SHELL_NAMES.search(match["file"]):
        return None
    return match if not NO_ERROR_OF_SHELL.match(match["said"]) else None


def _command_line(lines: list[str], number: int, folder: str) -> PrintedError | None:
    """Read an error of a shell, Python's command line or the program's own argument parser."""
    line = lines[number]
    read = PrintedError(MAIN, number)
    read.raw = [line]
    if match := _shell(line):
        read.error = re.sub(r"^(?:exec: |\d+ )", "", match["said"]).strip()
        read.place = _place([(match["file"], int(match["line"]))], folder)
        while read.end < len(lines) and SHELL.match(lines[read.end]) and "`" in lines[read.end]:
            read.end += 1  # the shell quotes the line with the syntax error
    elif USAGE.match(line):
        read.error = line
    elif match := FLAGS.match(line):
        if not match["said"] and read.end < len(lines):
            read.end += 1
        read.error = match["said"].strip() or lines[read.end - 1].strip()
        while read.end < len(lines) and lines[read.end].startswith("Pass --help"):
            read.end += 1
    else:
        return None
    return read
