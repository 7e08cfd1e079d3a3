"""The places where a program writes its results, and the checkpoint from which it started.

If the program writes event files or checkpoints outside of the run's folder, links to them are
created in `written`, a subfolder of the run's folder, so that TensorBoard and the progress display
find them. Files on a pod's own disk, which is lost with the pod, are copied to `written` instead
while the program runs, up to a limit. To find these files, the module examines the files that the
program's processes have open, and new files in the folders in which the program may write. It never
reads the program's source. It writes nothing outside of the run's folder. It works in a thread,
because access to a volume may hang. Standard library only, Python 3.8.
"""

from __future__ import annotations

import glob
import json
import os
import re
import select
import socket
import stat
import sys
import threading
import time

import activity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process import EventLoop
    from task_config import TaskConfig

WRITTEN = "written"
# Folder on the log volume in which a task in a pod records which folders will be lost with the pod.
# Clients that have the log volume read it.
LOST = ".tfcluster-lost"
# Seconds between two searches, which grow with the age of the task. Each pair is: (until this many
# seconds after the start, seconds between two searches).
PACE = ((30.0, 1.0), (300.0, 2.5), (float("inf"), 10.0))
# Every fourth search also lists the folders in which the program may write.
WALK_EVERY = 4
ENTRIES = 4000
DEPTH = 4
MOST_LINKS = 64
# Limits of the copies from a pod's own disk. When a search has copied COPY_PER_LOOK bytes, it
# copies no further file; COPY_IN_ALL is the maximum for all copies together.
COPY_PER_LOOK = 16 << 20
COPY_IN_ALL = 512 << 20
SETTLED = 2.0

_EVENTS = re.compile(r"\.tfevents\.(\d{9,11})\.(.*)")
_CHECKPOINT = re.compile(r"(checkpoint|.*\.(index|meta|data-\d+-of-\d+))$|graph\.pbtxt$")
_RESULT = re.compile(rf"{_CHECKPOINT.pattern}|.*\.(h5|keras|npz|pb|tflite)$")
_IGNORED = {".git", ".venv", "node_modules", "__pycache__", ".ipynb_checkpoints", ".tfcluster"}


def files_below(folder: str, but: str = "") -> Iterator[os.DirEntry[str]]:
    """Yield the files in a folder and four levels of folders below it, breadth first. Links are not
    followed, and the folder `but` is left out. At most ENTRIES entries are listed.
    """
    level, left = [folder], ENTRIES
    for _depth in range(DEPTH + 1):
        below: list[str] = []
        for parent in level:
            if parent == but:
                continue
            try:
                with os.scandir(parent) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            return
                        hidden = entry.name in _IGNORED or entry.name.startswith(".")
                        if entry.is_file(follow_symlinks=False):
                            yield entry
                        elif entry.is_dir(follow_symlinks=False) and not hidden:
                            below.append(entry.path)
            except OSError:
                # Skip a folder that is gone or may not be read.
                continue
        level = below


def open_event_files(pids: list[int]) -> set[str]:
    """Return the paths of the event files that these processes have open."""
    found = activity.event_files(pids)
    return {p for p in found if _EVENTS.search(os.path.basename(p)) and os.path.isabs(p)}


# ---- the disk of a pod ----

_GONE_WITH_POD = {"overlay", "tmpfs", "aufs", "ramfs"}
_EMPTY_DIR = "kubernetes.io~empty-dir"


def is_lost_with_pod(path: str, mountinfo: str) -> bool:
    """Return whether a path is on a pod's own disk. `mountinfo` is the text of
    /proc/self/mountinfo.
    """
    best, lost = "", False
    for line in mountinfo.splitlines():
        head, _dash, tail = line.partition(" - ")
        fields, kind = head.split(), tail.split(" ", 1)[0]
        if len(fields) < 5 or not kind:
            continue
        root, mount = fields[3], fields[4].replace("\\040", " ")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, lost = mount, kind in _GONE_WITH_POD or _EMPTY_DIR in root
    return lost


# ---- earlier checkpoints ----

_CHECKPOINT_PATH = re.compile(rb'^model_checkpoint_path:\s*"((?:[^"\\\n]|\\.)*)"\s*$', re.MULTILINE)
_NUMBER = re.compile(r"-(\d+)$")
MOST_CHECKPOINTS = 32
IN_OPEN = 0x20


def checkpoint_name(index: str) -> str:
    """Return the name of the newest checkpoint, such as `model.ckpt-278`, from TensorFlow's file
    `checkpoint` at the path `index`; '' if it names none.
    """
    try:
        fd = os.open(index, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            named = _CHECKPOINT_PATH.search(file.read(64 << 10))
    except OSError:
        return ""
    return os.path.basename(named.group(1).decode("utf-8", "replace"))[:100] if named else ""


def number_of(checkpoint: str) -> int:
    """Return the number at the end of a checkpoint's name, which in TensorFlow 1 is the step; -1 if
    there is none.
    """
    found = _NUMBER.search(checkpoint)
    return int(found.group(1)) if found else -1


def spare_steps(checkpoint: str) -> int:
    """Return the number of steps that a program trains after it has restored a checkpoint of a
    completed training.

    This is 1 in TensorFlow 1, whose StopAtStepHook checks only after the first step. It is 0 in
    TensorFlow 2, where the number in a checkpoint's name may count checkpoints instead of steps.
    """
    return 1 if checkpoint.startswith("model.ckpt-") else 0


class EarlierCheckpoints:
    """The checkpoints that are in the folders of a program before the program starts. `watch` makes
    the kernel report which of them the program opens. Without inotify, no checkpoint counts as
    opened.
    """

    def __init__(self, folders: list[str]) -> None:
        self.names: dict[str, str] = {}
        """The newest checkpoint by folder."""
        self._opened: set[str] = set()
        self._watched: dict[int, str] = {}
        self._fd = -1
        for folder in dict.fromkeys(folders):
            for entry in files_below(folder):
                if entry.name == "checkpoint" and len(self.names) < MOST_CHECKPOINTS:
                    name = checkpoint_name(entry.path)
                    if name:
                        self.names[os.path.dirname(entry.path)] = name

    def watch(self) -> None:
        """Start to watch which checkpoints are opened. Call this just before the program starts."""
        import ctypes

        if not self.names:
            return
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            for folder, name in self.names.items():
                # Only a program that restores the checkpoint opens this file. The file `checkpoint`
                # is also read by other tasks.
                index = os.fsencode(os.path.join(folder, f"{name}.index"))
                number = libc.inotify_add_watch(self._fd, index, IN_OPEN)
                if number >= 0:
                    self._watched[number] = folder
        except (OSError, AttributeError):
            # This is not Linux, or the C library lacks inotify.
            self._fd = -1

    def note_opened(self) -> None:
        """Record the checkpoints that were opened since the last call."""
        try:
            data = os.read(self._fd, 1 << 16) if self._fd >= 0 else b""
        except OSError:
            return
        while len(data) >= 16:
            number = int.from_bytes(data[:4], sys.byteorder, signed=True)
            if number in self._watched:
                self._opened.add(self._watched[number])
            data = data[16 + int.from_bytes(data[12:16], sys.byteorder) :]

    def only_found(self) -> tuple[str, str, int]:
        """Return a tuple: the folder of a checkpoint that the program opened, the name of this
        checkpoint, and the number of steps by which the newest checkpoint in the folder is newer.

        Folder and name are empty if the program opened no checkpoint. They are also empty if the
        program has trained since then. It has trained if a folder now has a checkpoint that is
        newer than the opened one by more than `spare_steps`.
        """
        self.note_opened()
        found = ("", "", 0)
        for folder in sorted(self._opened, key=lambda each: number_of(self.names[each])):
            before = self.names[folder]
            name = checkpoint_name(os.path.join(folder, "checkpoint"))
            steps = max(number_of(name) - number_of(before), 0)
            if not name or steps > spare_steps(before):
                return ("", "", 0)
            found = (folder, before, steps)
        return found


# Output that proves training, such as the number of an epoch or a progress bar.
_TRAINED = re.compile(rb"\bepoch\W{0,3}\d|\d/\d+ *(?:\[|\xe2\x94)|\d%\|", re.IGNORECASE)
_PRINTED_STEP = re.compile(rb"\b(?:step|iter(?:ation)?|batch)\W{0,4}(\d+)(.*)", re.IGNORECASE)
_FIGURE = re.compile(rb"loss|acc", re.IGNORECASE)


def printed_training(tail: bytes, last: int, spare: int) -> bool:
    """Return whether `tail`, the end of the output, shows training after the checkpoint of step
    `last`. Signs of training are an epoch, a progress bar, and a step above `last` + `spare`. A
    step below `last` is a sign if its line also has a loss or an accuracy: then a new training has
    begun.
    """
    if _TRAINED.search(tail):
        return True
    for line in tail.splitlines():
        for number, _rest in _PRINTED_STEP.findall(line):
            step = int(number)
            if step > last + spare or (step < last and _FIGURE.search(line)):
                return True
    return False


def furthest_event(path: str) -> int:
    """Return the largest step in the first MiB of an event file; -1 if there is none.

    Source: TFRecord framing and `Event.step` in TensorFlow's record_writer.h and event.proto.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 20)
    except OSError:
        return -1
    furthest, at = -1, 0
    while at + 12 < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        event = data[at + 12 : at + 12 + length]
        if event[:1] == b"\x09" and event[9:10] == b"\x10":  # fields wall_time, step
            step = shift = 0
            for byte in event[10:20]:
                step |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    furthest = max(furthest, step)
                    break
        at += length + 16
    return furthest


# ---- the watch ----


def places_of(config: TaskConfig, folder: str) -> list[str]:
    """Return the folders in which a program may write: `folder`, in which it starts, and folders
    among its arguments.
    """
    named = [str(each).rpartition("=")[2] for each in config.program.get("arguments", ())]
    wanted = [os.path.join(folder, os.path.expanduser(each)) for each in named if "/" in each]
    return [folder, *(each for each in wanted if os.path.isdir(each))][:MOST_PLACES]


MOST_PLACES = 8


def log_root(config: TaskConfig) -> str:
    """Return the folder that has the output folders of all runs; '' if this run's output folder has
    an unusual path.
    """
    own = f"/{config.data.get('cluster')}/{config.data.get('run')}"
    return config.output_dir[: -len(own)] if config.output_dir.endswith(own) else ""


class WriteWatch:
    """A thread that finds out where a program writes.

    Args:
        config: the configuration of the task.
        folder: the folder in which the program starts.
        loop: the event loop, which calls `say` and `told`.
        say: prints a line to the log.
        told: called for each folder outside of the run's folder in which results are found; the
            arguments are the folder, and whether it will be lost with the pod.
        earlier: the checkpoints that existed before the program started.
    """

    def __init__(
        self,
        config: TaskConfig,
        folder: str,
        loop: EventLoop,
        say: Callable[[str], None],
        told: Callable[[str, bool], None],
        earlier: EarlierCheckpoints | None = None,
    ) -> None:
        self._config = config
        self._folder = folder
        self._places = places_of(config, folder)
        self._loop = loop
        self._say = say
        self._told = told
        self._earlier = earlier
        self._events: set[str] = set()
        self._foreign: set[str] = set()  # event files of processes that are not ours
        self._results = False
        self._began = time.time()
        self._looks = 0
        self._pids: set[int] = set()
        self._placed: dict[str, str] = {}
        self._copied: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._left_out, self._said_left_out = "", False
        self._folders: dict[str, bool] = {}
        self._news: list[tuple[str, bool]] = []
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._hear, self._tell = os.pipe()

    @property
    def folders(self) -> dict[str, bool]:
        """The folders outside of the run's folder that have results; the value says whether the
        folder will be lost.
        """
        return dict(self._folders)

    def start(self) -> None:
        """Start the thread. Call this after the program's process was started."""
        self._loop.on_fd(self._hear, select.POLLIN, self._heard)
        threading.Thread(target=self._run, daemon=True).start()

    def close(self, seconds: float) -> None:
        """Let the thread search once more; wait at most `seconds` for it."""
        self._closing.set()
        self._ended.wait(seconds)
        self._heard_all()

    def _heard(self) -> None:
        os.read(self._hear, 512)
        self._heard_all()

    def _heard_all(self) -> None:
        while self._news:
            folder, lost = self._news.pop(0)
            if lost:
                self._say(
                    f"{folder} is on the pod's own disk and is lost with it: results there are "
                    f"copied to {self._place_of(folder)} while there is room; write to "
                    f"$TFCLUSTER_OUTPUT_DIR ({self._config.output_dir}), which is kept"
                )
            self._told(folder, lost)
        if self._left_out and not self._said_left_out:
            self._said_left_out = True
            self._say(
                f"{self._left_out} is not copied: at most {COPY_IN_ALL >> 20} MiB are copied from "
                f"the pod's own disk; write to $TFCLUSTER_OUTPUT_DIR ({self._config.output_dir})"
            )

    def _run(self) -> None:
        last = False
        while not last:
            passed = time.time() - self._began
            last = self._closing.wait(next(pause for until, pause in PACE if passed < until))
            try:
                self._look(last)
            except Exception:
                # An error of a file system must not end the task, and the next search may succeed.
                pass
        self._ended.set()

    def _look(self, last: bool) -> None:
        if self._earlier is not None:
            self._earlier.note_opened()
        pids = activity.family()
        self._pids.update(pids)
        found = open_event_files(pids)
        self._events |= found
        own = os.path.realpath(self._config.output_dir)
        if last or self._looks % WALK_EVERY == 0:
            others = [each for each in self._places if os.path.realpath(each) != own]
            for folder in dict.fromkeys([*others, *map(os.path.dirname, sorted(found)), own]):
                found |= self._new_files(folder)
        self._looks += 1
        left = COPY_IN_ALL if last else COPY_PER_LOOK
        beside = {os.path.dirname(path) for path in self._events}
        beside |= {os.path.dirname(each) for each in beside}
        for path in sorted(found):
            if os.path.realpath(path).startswith(own + os.sep):
                continue
            folder = os.path.dirname(path)
            if self._is_lost(folder):
                left -= self._copy(path, left, last)
            elif path in self._events or folder in beside or os.path.dirname(folder) in beside:
                # link only checkpoints near event files: any other may belong to another run
                self._link(path)

    def _new_files(self, folder: str) -> set[str]:
        """Find new event files and checkpoints below a folder."""
        found = set()
        for entry in files_below(folder, log_root(self._config)):
            if _EVENTS.search(entry.name):
                if self._is_new_event_file(entry):
                    found.add(entry.path)
                    self._events.add(entry.path)
            elif _RESULT.match(entry.name) and self._is_new(entry):
                self._results |= not _CHECKPOINT.match(entry.name)
                if entry.name == "checkpoint" or self._is_lost(os.path.dirname(entry.path)):
                    found.add(entry.path)
        return found

    def _is_new(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.stat().st_mtime >= self._began - 1.0
        except OSError:
            return False

    def _is_new_event_file(self, entry: os.DirEntry[str]) -> bool:
        """Return whether this program created the event file. Time, host and process id are taken
        from the file's name; some names have no process id.
        """
        match = _EVENTS.search(entry.name)
        if match is None or int(match.group(1)) < int(self._began) - 1 or not self._is_new(entry):
            return False
        rest = match.group(2)
        host = socket.gethostname()
        if rest.startswith(host + "."):
            number = rest[len(host) + 1 :].split(".")[0]
            unknown = number.isdigit() and int(number) not in self._pids
            if unknown and entry.path not in self._events:
                # The process that created the file is not known as one of ours. If it still runs,
                # it belongs to somebody else who works in the same folder. If it has ended, it may
                # be one of ours that ended before we saw it.
                if entry.path not in self._foreign and (
                    os.path.exists(f"/proc/{number}") or self._is_linked_elsewhere(entry.path)
                ):
                    self._foreign.add(entry.path)
                return entry.path not in self._foreign
        return True

    def _is_linked_elsewhere(self, path: str) -> bool:
        """Return whether another run has linked this event file."""
        root, own = log_root(self._config), self._config.output_dir + os.sep
        if not root:
            return False
        written = os.path.join(glob.escape(root), "*", "*", WRITTEN)
        name = glob.escape(os.path.basename(path))
        return any(
            not link.startswith(own) and os.path.realpath(link) == os.path.realpath(path)
            for inside in ("", "*", os.path.join("*", "*"))
            for link in glob.iglob(os.path.join(written, inside, name))
        )

    def _is_lost(self, folder: str) -> bool:
        if not self._config.in_pod:
            return False
        if folder in self._folders:
            return self._folders[folder]
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
                return is_lost_with_pod(os.path.realpath(folder), file.read())
        except OSError:
            return False

    def _note(self, folder: str, lost: bool) -> None:
        if folder not in self._folders:
            self._folders[folder] = lost
            if lost:
                self._write_lost()
            self._news.append((folder, lost))
            os.write(self._tell, b".")

    def _write_lost(self) -> None:
        """Record in a file which folders will be lost, because clients get no reports of a running
        pod.
        """
        place = os.path.join(self._config.output_dir, LOST)
        os.makedirs(place, exist_ok=True)
        told = {"folders": {f: self._place_of(f) for f, lost in self._folders.items() if lost}}
        partial = os.path.join(place, f".{self._config.task}.{os.getpid()}")
        with open(partial, "w", encoding="utf-8", errors="replace") as file:
            json.dump(told, file)
        os.replace(partial, os.path.join(place, f"{self._config.task}.json"))

    def _place_of(self, folder: str) -> str:
        """Return the folder for the files in `folder`: for links to them, or for copies of them.
        The returned folder is below `written` in the run's folder, at most two levels deep.
        """
        inside = os.path.relpath(folder, self._folder)
        parts = [each for each in inside.split(os.sep) if each not in (".", "")]
        if inside.startswith(".."):
            parts = [each for each in folder.split(os.sep) if each][-2:]
        if self._folders.get(folder):
            parts = [self._config.task, *parts]
        parts = ["-".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts
        return os.path.join(self._config.output_dir, WRITTEN, *parts)

    def _link(self, path: str) -> None:
        if path in self._placed or len(self._placed) >= MOST_LINKS:
            return
        folder = os.path.dirname(path)
        if not f"{folder}/".startswith(f"{self._config.program['dir']}/"):
            # do not report a folder inside the task's copy of the program: `keep_written` moves its
            # files
            self._note(folder, False)
        place = self._place_of(folder)
        os.makedirs(place, exist_ok=True)
        link = os.path.join(place, os.path.basename(path))
        self._placed[path] = link
        try:
            os.symlink(path, link)
        except FileExistsError:
            # Another task of the run writes to the same folder, and has made the link.
            pass

    def _copy(self, path: str, most: int, last: bool) -> int:
        """Copy the new bytes of a file that will be lost, up to about `most` bytes; return their
        number.
        """
        folder = os.path.dirname(path)
        self._note(folder, True)
        seen = os.stat(path)
        grows = _EVENTS.search(path) is not None
        done = self._copied.get(path, 0)
        if grows:
            size = seen.st_size - done
        else:  # a checkpoint is written once, and replaced rather than extended
            settled = last or time.time() - seen.st_mtime > SETTLED
            size = seen.st_size if settled and done != seen.st_mtime_ns else 0
        if size <= 0 or most <= 0:
            return 0
        if grows:
            size = min(size, most)
        kept = done if grows else 0
        if not self._has_room(path, kept + size):
            self._leave_out(path)
            return 0
        target = self._copy_of(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if grows:
            with open(path, "rb") as source, open(target, "r+b" if done else "wb") as copy:
                source.seek(done)
                copy.seek(done)
                copy.write(source.read(size))
            self._copied[path] = done + size
        else:
            import shutil

            shutil.copyfile(path, target + ".partial")
            os.replace(target + ".partial", target)
            self._copied[path] = seen.st_mtime_ns
        self._sizes[path] = kept + size
        return size

    def _copy_of(self, path: str) -> str:
        return os.path.join(self._place_of(os.path.dirname(path)), os.path.basename(path))

    def _has_room(self, path: str, size: int) -> bool:
        """Return whether there is room for a copy of `size` bytes. Copies of files that the program
        has removed are deleted to make room.
        """
        others = sum(self._sizes.values()) - self._sizes.get(path, 0)
        for old in list(self._sizes):
            if others + size <= COPY_IN_ALL:
                break
            if old != path and not os.path.exists(old):
                os.unlink(self._copy_of(old))
                others -= self._sizes.pop(old)
                del self._copied[old]
        return others + size <= COPY_IN_ALL

    def _leave_out(self, path: str) -> None:
        """Report a file that is not copied; only the first one is reported."""
        if not self._left_out:
            self._left_out = path
            os.write(self._tell, b".")

    def found_only_a_checkpoint(self, tail: bytes) -> dict[str, str | int] | None:
        """Return the checkpoint that a program restored without training further; None if it has
        trained or restored none.

        A checkpoint is returned only if the program opened it, saved no newer checkpoint and no
        other result, and neither printed nor logged a further step. `tail` is the end of its
        output. Call this after close().
        """
        if self._earlier is None:
            return None
        folder, name, steps = self._earlier.only_found()
        last, spare = number_of(name), spare_steps(name)
        if not name or self._results or printed_training(tail, last, spare):
            return None
        if any(furthest_event(path) > max(last, 0) + spare for path in self._events):
            return None
        own, output = os.path.realpath(folder), os.path.realpath(self._config.output_dir)
        of_output = own == output or own.startswith(output + os.sep)
        parts = (self._config.resume_from or "").rstrip("/").split("/")
        run = "-".join(parts[-2:]) if of_output and len(parts) > 2 else ""
        return {"checkpoint": name, "folder": folder, "run": run, "steps": steps}
