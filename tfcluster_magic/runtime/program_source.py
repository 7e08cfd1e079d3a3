"""Finding a program that has no snapshot, when a task starts.

The program is a path that the task sees, a URL, a command of the task's image, or a text that no
launch inspected. This module fetches a program, compares checksums, chooses the file to run if the
program is a folder, and adds the results to the task's description of its program. Only the task
itself ever reads a URL, and only if the administrator allows connections to the URL's network.
Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import stat
import tempfile
import time

from task_config import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import urllib.request
    from collections.abc import Callable, Iterator
    from typing import Any

    from task_config import TaskConfig

ENTRIES = ("run.sh", "main.py", "__main__.py")
"""If a program is a folder, the first of these files that exists is run. If none exists, the
folder's only `.py` file is run. `program/sources.py` has the same list.
"""
SCRIPTS = (".py", ".sh")
ARCHIVES = (".zip", ".tar.gz", ".tgz")
MOST_BYTES = 50 << 20
"""Maximum bytes of a program: a file, a hashed folder, a download, or the content of an archive."""
MOST_FILES = 10000
MOST_HEADER = 1 << 20
"""Maximum bytes of an entry's header in a .tar.gz. tarfile keeps several copies of a header in
memory, so larger headers are refused.
"""
PATH_PATIENCE = 60.0
"""Maximum seconds to wait for the program's path, because NFS caches for this long that a file does
not exist. Ref: https://man7.org/linux/man-pages/man5/nfs.5.html (acdirmax)
"""
NEVER_SEEN = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
URL_PATIENCE = 60.0
"""Maximum seconds to wait until a URL answers, and, separately, for the whole download. The URL is
requested repeatedly, because a new pod may have no network until its network policy takes effect.
"""
TOO_SLOW = "the server sends too slowly"
CONNECT_SECONDS = 10.0
PASSING = (408, 425, 429, 500, 502, 503, 504)
"""HTTP codes of temporary errors, after which the request is repeated. Ref:
https://www.rfc-editor.org/rfc/rfc9110#section-15
"""
SERVES = re.compile(
    r"\b(?:ParameterServerStrategy(?:V2)?|MultiWorkerMirroredStrategy|CollectiveAllReduceStrategy"
    r"|(?:train|distribute|server_lib)\.Server|estimator\.train_and_evaluate)\b"
)
"""Names in a program's text that show that the program listens on its task's port.
`program/inspection.py` searches snapshots for the same names.
"""
IMPORTED = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
MOST_READ, MOST_READ_FILES = 1 << 20, 200


def find_program(config: TaskConfig, patience: float, say: Callable[[str], None]) -> None:
    """Add to the program's description where the program is, what starts it, and whether it listens
    on its task's port. Wait at most `patience` seconds for the program.

    Raises:
        ConfigError: the program does not exist, cannot be fetched, or has another checksum than
            requested.
    """
    program = config.program
    if program.get("command"):
        _find_command(config)
    elif program.get("url"):
        _find_download(config, min(URL_PATIENCE, patience), say)
    elif program.get("path"):
        _find_path(config, min(PATH_PATIENCE, patience), say)
    if not program.get("serves"):
        found = _serves(program)
        program["serves"], program["mayServe"] = bool(found), found is None


def _find_command(config: TaskConfig) -> None:
    """Make the command start in the image's working directory, which is the current directory of a
    pod's first process.
    """
    if config.in_pod and not config.program.get("workingDir"):
        config.program.update(dir=os.getcwd(), workingDir=".")


def _find_path(config: TaskConfig, patience: float, say: Callable[[str], None]) -> None:
    program = config.program
    path = program["path"]
    try:
        whole = stat.S_ISDIR(_wait_for(path, patience, say).st_mode)
        if program.get("sha256"):
            found = folder_checksum(path) if whole else file_checksum(path)
            _compare(program, path, found)
        if whole:
            _starts(program, path, path)
        else:
            program.update(dir=os.path.dirname(path) or "/", entrypoint=os.path.basename(path))
    except PermissionError as error:
        named = str(error.filename or path)
        raise ConfigError(
            f"the task may not read {named}", code="ProgramForbidden", path=named
        ) from None
    except OSError as error:
        raise ConfigError(f"the program {path} cannot be read: {error.strerror}") from None
    program["workingDir"] = program.get("workingDir") or "."


def _wait_for(path: str, patience: float, say: Callable[[str], None]) -> os.stat_result:
    """Return the stat of a path; wait at most `patience` seconds until it exists.

    Raises:
        ConfigError: the path does not exist by then.
        OSError: the path cannot be read.
    """
    until, told = time.monotonic() + patience, False
    while True:
        try:
            return os.stat(path)
        except OSError as error:
            if error.errno in NEVER_SEEN:
                raise
            if time.monotonic() > until:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                raise ConfigError(
                    f"there is no {path} where the task runs", code="ProgramNotThere", path=path
                ) from None
            if not told:
                say(f"waiting for {path}: {error.strerror}")
            told = True
        time.sleep(0.2)


def _starts(program: dict[str, Any], folder: str, source: str) -> None:
    """Choose which file of the folder to run: the requested one, else the first of ENTRIES that
    exists, else the only `.py` file.
    """
    program["dir"] = folder
    if program.get("entrypoint"):
        return
    here = sorted(each for each in os.listdir(folder) if not each.startswith("."))
    programs = [each for each in here if each.endswith(".py")]
    named = [each for each in ENTRIES if each in here]
    if not named and len(programs) != 1:
        raise ConfigError(
            f"it is not clear which file of {source} to start: name it as `entrypoint`, or have "
            "one of "
            f"{', '.join(ENTRIES)}, or only one .py file"
        )
    program["entrypoint"] = (named or programs)[0]


# ---- checksums ----


def file_checksum(path: str) -> str:
    """Return the SHA-256 of a file, as `sha256sum` prints it. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def folder_checksum(folder: str) -> str:
    r"""Return the SHA-256 of the output of `sha256sum` for all files of a folder, sorted by path.

    Hidden files and folders and `__pycache__` do not count; links count as their targets.

        find -L . -mindepth 1 \( -name '.*' -o -name __pycache__ \) -prune -o -type f \
            -printf '%P\0' | LC_ALL=C sort -z | xargs -0r sha256sum -- | sha256sum

    Raises:
        OSError: a file is unreadable.
        ConfigError: the folder is larger, or has more files, than a program may have, or
            `sha256sum` escapes a file's name.
    """
    left, listed = MOST_BYTES, []
    for path in _files_of(folder):
        left -= os.path.getsize(os.path.join(folder, path))
        listed.append(os.fsencode(path))
        if path == "-" or re.search(r"[\\\n\r]", path):
            raise ConfigError(
                f"sha256sum would escape the name of the file {path!a} in the folder {folder}: "
                "rename that file",
                code="NameWithoutChecksum",
                folder=folder,
                name=ascii(path),
            )
        if left < 0 or len(listed) > MOST_FILES:
            raise ConfigError(
                f"the folder {folder} has more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB: "
                "keep data out of a program's folder"
            )
    digest = hashlib.sha256()
    for name in sorted(listed):
        checksum = file_checksum(os.path.join(folder, os.fsdecode(name)))
        digest.update(checksum.encode() + b"  " + name + b"\n")
    return digest.hexdigest()


def _files_of(folder: str) -> Iterator[str]:
    """Yield the paths of files below a folder. Links are followed, except those to a folder that
    contains them. Raises OSError.
    """
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while waiting:
        below, above = waiting.pop()
        whole = os.path.join(folder, below)
        found = os.stat(whole)
        here = found.st_dev, found.st_ino
        if here in above:
            continue
        for name in filter(_counts, os.listdir(whole)):
            path = os.path.join(below, name)
            if os.path.isdir(os.path.join(whole, name)):
                waiting.append((path, above | {here}))
            elif os.path.isfile(os.path.join(whole, name)):
                yield path


def _counts(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


def _compare(program: dict[str, Any], source: str, found: str) -> None:
    expected = program["sha256"]
    if found != expected:
        raise ConfigError(
            f"{source} does not have the checksum {expected}, but {found}",
            code="ChecksumDiffers",
            source=source,
            expected=expected,
            found=found,
        )


# ---- downloads ----


def _find_download(config: TaskConfig, patience: float, say: Callable[[str], None]) -> None:
    program = config.program
    url = program["url"]
    name, content = _fetch(url, _opener(config), patience, say)
    if program.get("sha256"):
        _compare(program, url, hashlib.sha256(content).hexdigest())
    if re.match(rb"\s*<(?:!doctype|html|head)", content[:200], re.IGNORECASE):
        raise ConfigError(
            f"{url} is a web page, not a program: use the address of the raw file",
            code="ProgramIsWebPage",
            url=url,
        )
    try:
        folder = tempfile.mkdtemp(prefix="program-", dir=program.get("dir") or None)
        if name.lower().endswith(ARCHIVES):
            _starts(program, _unpack(content, name, folder), url)
            program["workingDir"] = program.get("workingDir") or "."
        else:
            plain = re.fullmatch(r"\w[\w.-]*", name)
            entry = name if plain else "program" + os.path.splitext(name)[1]
            with open(os.path.join(folder, entry), "wb") as file:
                file.write(content)
            program.update(dir=folder, entrypoint=entry)
    except OSError as error:
        raise ConfigError(f"the program of {url} cannot be kept: {error.strerror}") from None


def _opener(config: TaskConfig) -> urllib.request.OpenerDirector:
    """Return an opener for http and https that uses the program's own proxy settings. It refuses
    redirects to other schemes.
    """
    import urllib.request
    from urllib.parse import urljoin, urlsplit

    env = {**os.environ, **(config.data.get("env") or {})}
    found = {
        kind: env.get(f"{kind}_proxy") or env.get(f"{kind.upper()}_PROXY") or ""
        for kind in ("http", "https", "no")
    }

    class Proxies(urllib.request.ProxyHandler):
        def proxy_open(self, req: Any, proxy: str, type: str) -> Any:  # noqa: A002
            skips: Any = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]
            if skips(req.host, found):
                return None
            return super().proxy_open(req, proxy, type)

    class Redirects(urllib.request.HTTPRedirectHandler):
        def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
            fp.close()  # otherwise the base class reads the whole body, however large it is
            target = urljoin(req.full_url, headers.get("location") or "")
            if urlsplit(target).scheme.lower() not in ("http", "https"):  # not ftp
                raise ConfigError(
                    f"{req.full_url} leads to {target}, and only http and https are followed",
                    code="ProgramRedirected",
                    url=req.full_url,
                    target=target,
                )
            known = 307 if code == 308 else code  # Python 3.10 does not know 308
            return super().http_error_302(req, fp, known, msg, headers)

        http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    proxies = {kind: proxy for kind, proxy in found.items() if proxy and kind != "no"}
    opener = urllib.request.OpenerDirector()
    for handler in (
        Proxies(proxies),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _fetch(
    url: str,
    opener: urllib.request.OpenerDirector,
    patience: float,
    say: Callable[[str], None],
) -> tuple[str, bytes]:
    """Return the name and content of a URL. Raises ConfigError, also if the total time is too long.
    A limit for each read would not be enough, because a server may send a header byte by byte.
    """
    import threading

    found: list[tuple[str, bytes] | BaseException] = []

    def fetch() -> None:
        try:
            found.append(_fetched(url, opener, patience, say))
        except BaseException as error:  # raised in the waiting thread
            found.append(error)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(2 * patience + min(CONNECT_SECONDS, patience))
    if not found:
        raise _not_fetched(url, TOO_SLOW)
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _not_fetched(url: str, why: str) -> ConfigError:
    told = f"{url} cannot be fetched: {why}"
    return ConfigError(told, code="ProgramNotFetched", url=url, why=why)


def _fetched(
    url: str,
    opener: urllib.request.OpenerDirector,
    patience: float,
    say: Callable[[str], None],
) -> tuple[str, bytes]:
    """Return the name and content of a URL, without a total time limit. Raises ConfigError."""
    import urllib.error
    from http.client import HTTPException

    until, pause, told = time.monotonic() + patience, 0.5, ""
    while True:
        final = False
        try:
            with opener.open(url, timeout=CONNECT_SECONDS) as answer:
                return _name_of(url, answer.url), _read(answer, url, patience)
        except urllib.error.HTTPError as error:
            why, final = f"{error.code} {error.reason}", error.code not in PASSING
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or str(error.reason)
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if final or time.monotonic() > until:
            raise _not_fetched(url, why)
        if why != told:
            say(f"waiting for {url}: {why}")
            told = why
        time.sleep(pause)
        pause = min(5.0, pause * 1.5)


def _name_of(*urls: str) -> str:
    """Return the first file name of these URLs that has a known ending. Raises ConfigError if there
    is none.
    """
    for name in map(_last_part, urls):
        if name.lower().endswith((*SCRIPTS, *ARCHIVES)):
            return name
    raise ConfigError(
        f"{urls[0]} ends in none of {', '.join((*SCRIPTS, *ARCHIVES))}, so nobody knows how it is "
        "started",
        code="ProgramOfNoKind",
        url=urls[0],
    )


def _read(answer: Any, url: str, patience: float) -> bytes:
    content, until = bytearray(), time.monotonic() + patience
    whole = getattr(answer, "length", None)
    while len(content) != whole:
        block = answer.read1(1 << 16)
        if not block:
            break
        content += block
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{url} is larger than {MOST_BYTES >> 20} MiB: keep data out of it")
        if time.monotonic() > until and len(content) != whole:
            raise TimeoutError(errno.ETIMEDOUT, TOO_SLOW)
    if whole is not None and len(content) < whole:
        raise ConnectionError(errno.ECONNRESET, "the connection ended early")
    return bytes(content)


def _last_part(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path).rstrip("/").rpartition("/")[2]


def _unpack(content: bytes, name: str, folder: str) -> str:
    """Unpack an archive into `folder`. Return the folder with its content: the archive's only
    top-level folder, or `folder` if the archive has more at the top.

    Raises:
        ConfigError: the archive is damaged, too large, or has unsupported entries.
        OSError: the files cannot be written.
    """
    left = MOST_BYTES
    try:
        entries = (_zipped if name.lower().endswith(".zip") else _tarred)(content, name)
        for path, executable, stream in entries:
            parts = path.split("/")
            if any(part in ("", "..") or "\0" in part for part in parts):
                raise ConfigError(f"the archive {name} holds {path!r}, which is not unpacked")
            target = os.path.join(folder, *parts)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                left -= _copy(stream, file, left)
            if left < 0:
                raise _too_large(name)
            if executable:
                os.chmod(target, 0o700)
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # damaged archives make the library raise errors of many types
        if isinstance(error, OSError) and error.errno:
            raise
        why = _damage(error)
        raise ConfigError(
            f"the archive {name} cannot be unpacked: {why}",
            code="ArchiveDamaged",
            archive=name,
            why=why,
        ) from None
    inside = os.listdir(folder)
    only = os.path.join(folder, inside[0]) if len(inside) == 1 else ""
    return only if os.path.isdir(only) else folder


def _copy(stream: Any, file: Any, most: int) -> int:
    """Copy a stream, but stop once more than `most` bytes are copied; return the number of copied
    bytes.
    """
    count = 0
    while count <= most:
        block = stream.read(1 << 16)
        if not block:
            break
        file.write(block)
        count += len(block)
    return count


NO_GZIP = "Not a gzipped file"
"""Python's message for bytes that do not begin as gzip files do."""


def _damage(error: Exception) -> str:
    """Return in words why an archive cannot be unpacked. `error` is the exception that Python's
    library raised for it.
    """
    import gzip
    import tarfile
    import zipfile

    if isinstance(error, gzip.BadGzipFile) and NO_GZIP in str(error):
        return "not a gzip file"
    told = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, RuntimeError)
    if isinstance(error, told) and str(error):
        return str(error)
    return "it ends too early" if isinstance(error, EOFError) else "it is damaged or incomplete"


def _no_file(name: str, entry: str) -> ConfigError:
    return ConfigError(
        f"{entry} in the archive {name} is neither a file nor a folder: pack plain files",
        code="ArchiveHoldsLink",
        archive=name,
        entry=entry,
    )


def _too_large(name: str) -> ConfigError:
    most = MOST_BYTES >> 20
    told = f"the archive {name} unpacks to more than {most} MiB"
    return ConfigError(told, code="ArchiveTooLarge", archive=name, most=str(most))


def _too_many(name: str) -> ConfigError:
    told = f"the archive {name} has more than {MOST_FILES} files and folders"
    return ConfigError(told, code="ArchiveHoldsTooMany", archive=name, most=str(MOST_FILES))


def _zipped(content: bytes, name: str) -> Iterator[tuple[str, bool, Any]]:
    import zipfile

    with zipfile.ZipFile(_ListedFiles(content, name)) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _no_file(name, info.filename)
            if not info.is_dir():
                with archive.open(info) as stream:
                    yield _relative(info.filename), bool(mode & stat.S_IXUSR), stream


class _ListedFiles(io.BytesIO):
    """A .zip file whose `read` raises an error if the file's list has too many entries. zipfile
    reads the whole list, and a list of 50 MiB takes 1 GiB of memory. The entries are counted,
    because the number of entries that an archive states may be wrong.
    """

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self._name = name

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes. Raises ConfigError for a list with too many entries."""
        block = super().read(size)
        if _count_listed(block) > MOST_FILES:
            raise _too_many(self._name)
        return block


LISTED, LISTED_BYTES = b"PK\1\2", 46
"""The signature of an entry in a .zip's list, and the number of bytes before the entry's name. Ref:
https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (4.3.12)
"""


def _count_listed(block: bytes) -> int:
    """Return the number of consecutive entries in a .zip's list; stop counting above MOST_FILES."""
    import struct

    count = place = 0
    while count <= MOST_FILES and block.startswith(LISTED, place):
        if len(block) < place + LISTED_BYTES:
            break
        place += LISTED_BYTES + sum(struct.unpack_from("<3H", block, place + 28))
        count += 1
    return count


def _tarred(content: bytes, name: str) -> Iterator[tuple[str, bool, Any]]:
    import tarfile

    plain = _Unzipped(content, name)
    with tarfile.open(fileobj=plain, mode="r:") as archive:  # type: ignore[call-overload]
        for count, info in enumerate(archive):
            if count >= MOST_FILES:
                raise _too_many(name)
            if not (info.isfile() or info.isdir()):
                raise _no_file(name, info.name)
            stream = archive.extractfile(info) if info.isfile() else None
            if stream is not None:
                yield _relative(info.name), bool(info.mode & stat.S_IXUSR), stream
    while plain.read(1 << 16):  # gzip checks its checksum only when the end is read
        pass


class _Unzipped:
    """The uncompressed content of a .tar.gz, which can be read only forwards and up to a limit. The
    limit is needed because headers may claim any size, and many headers compress to few bytes.
    """

    def __init__(self, content: bytes, name: str) -> None:
        import gzip

        self._stream = gzip.GzipFile(fileobj=io.BytesIO(content))
        self._name, self._at = name, 0
        self._most = MOST_BYTES + MOST_FILES * 2048  # headers and padding come on top of files

    def read(self, size: int) -> bytes:
        """Return the next bytes. Data after the compressed content is ignored, as by tar. Raises
        ReadError for too large a header, and ConfigError at the limit.
        """
        import gzip
        import tarfile

        if size > MOST_HEADER:
            raise tarfile.ReadError(f"an entry has a header of {size} bytes")
        try:
            block = self._stream.read(size)
        except gzip.BadGzipFile as error:
            if not self._at or NO_GZIP not in str(error):
                raise
            return b""
        self._at += len(block)
        if self._at > self._most:
            raise _too_large(self._name)
        return block

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._at

    def seek(self, place: int) -> int:
        """Skip forwards to the offset `place`, or to the end if that comes first; return the
        offset.
        """
        while self._at < place and self.read(min(1 << 16, place - self._at)):
            pass
        return self._at


def _relative(name: str) -> str:
    return name[2:] if name.startswith("./") else name


# ---- what the program's text says ----


def _serves(program: dict[str, Any]) -> bool | None:
    """Return whether the program's text uses TensorFlow's distributed runtime; None if no text was
    found.
    """
    waiting = [path for path in _scripts(program) if os.path.isfile(path)]
    seen: set[str] = set()
    while waiting and len(seen) < MOST_READ_FILES:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        text = _text(path)
        if SERVES.search(text):
            return True
        beside = os.path.dirname(path)
        for name in IMPORTED.findall(text) if path.endswith(".py") else ():
            module = os.path.join(beside, name)
            waiting += [
                each for each in (f"{module}.py", f"{module}/__init__.py") if os.path.isfile(each)
            ]
        if path.endswith(".sh"):
            named = re.findall(r"[\w./-]+\.py\b", text)
            waiting += [
                found for each in named if os.path.isfile(found := os.path.join(beside, each))
            ]
    return False if seen else None


def _scripts(program: dict[str, Any]) -> list[str]:
    """Return the paths of the files that start the program, as far as they are known."""
    folder = program.get("dir") or ""
    if program.get("command"):
        words = [word for word in program["command"] if word.endswith(SCRIPTS)]
        return [os.path.join(folder, word) for word in words]
    return [os.path.join(folder, program.get("entrypoint") or "")]


def _text(path: str) -> str:
    """Return the beginning of a file without comment lines; empty if the file is unreadable."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(MOST_READ).splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))
