"""What has to be true before the program starts: names resolve, and the checkpoints of the old run are here.

Runs in a thread of its own, because a name server or a volume may hang and SIGTERM must still be answered.
Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import select
import time

from taskconfig import ConfigError, TaskConfig

# How long names may stay unresolved and the copy of checkpoints unfinished, in seconds.
PATIENCE = 600.0
MARKER = ".resumed-from"


def prepare(config: TaskConfig, say) -> None:  # type: ignore[no-untyped-def]
    """Make the output folder, wait for names, bring or await checkpoints. Raises ConfigError."""
    try:
        os.makedirs(config.output_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError("cannot make the output folder %s: %s" % (config.output_dir, error.strerror))
    patience = float(os.environ.get("TFCLUSTER_PATIENCE") or PATIENCE)
    wait_for_names(config.hosts, say, patience)
    if config.resume_from and config.program:
        if config.copies_checkpoints:
            copy_checkpoints(config.resume_from, config.output_dir, say)
        else:
            wait_for_marker(config.output_dir, say, patience)


def wait_for_names(hosts: list, say, patience: float) -> None:  # type: ignore[no-untyped-def]
    """Return once every host has an address. Raises ConfigError naming those that have none."""
    names = [host for host in hosts if not _is_address(host)]
    if not names:
        return
    import socket

    started, pause, told = time.monotonic(), 0.1, False
    while True:
        missing = []
        for name in names:
            try:
                socket.getaddrinfo(name, None)
            except OSError:
                missing.append(name)
        names = missing
        waited = time.monotonic() - started
        if not names:
            return
        shown = ", ".join(names[:3]) + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")
        if waited > patience:
            raise ConfigError("after %d s there is still no address for %s" % (waited, shown))
        if waited > 2 and not told:
            say("waiting for the address of %s" % shown)
            told = True
        # A name server has no event to wait for.
        time.sleep(pause)
        pause = min(2.0, pause * 1.5)


def _is_address(host: str) -> bool:
    return host == "localhost" or ":" in host or host.replace(".", "").isdigit()


def copy_checkpoints(old: str, new: str, say) -> None:  # type: ignore[no-untyped-def]
    """Copy everything but logs and event files, once; raises ConfigError when there is nothing to copy."""
    marker = os.path.join(new, MARKER)
    if os.path.exists(marker):
        # An earlier attempt of this run has done it, and may have trained on since.
        return
    if not os.path.isdir(old):
        raise ConfigError(
            "cannot resume: the old run's folder %s does not exist; launch without resuming" % old
        )
    import shutil

    count = 0
    try:
        for folder, folders, files in os.walk(old):
            target = os.path.normpath(os.path.join(new, os.path.relpath(folder, old)))
            os.makedirs(target, exist_ok=True)
            folders.sort()
            for name in sorted(files):
                if name.endswith(".log") or ".tfevents." in name or name == MARKER:
                    continue
                partial = os.path.join(target, name + ".partial")
                shutil.copy2(os.path.join(folder, name), partial)
                if name == "checkpoint":
                    _make_relative(partial, folder)
                os.replace(partial, os.path.join(target, name))
                count += 1
        with open(marker + ".partial", "w") as file:
            file.write(old + "\n")
        os.replace(marker + ".partial", marker)
    except OSError as error:
        raise ConfigError("cannot resume: copying %s to %s failed: %s" % (old, new, error))
    say("resumes from %s (%d files)" % (old, count))


def _make_relative(index: str, folder: str) -> None:
    # TensorFlow writes absolute paths into the file "checkpoint"; kept as they are, the new run would restore
    # from the old folder, and fail when that is deleted.
    with open(index, encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines):
        head, quote, rest = line.partition(': "')
        base = os.path.basename(rest.rstrip('"'))
        if quote and os.path.isabs(rest) and os.path.exists(os.path.join(folder, base + ".index")):
            lines[number] = '%s: "%s"' % (head, base)
    with open(index, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines))


def wait_for_marker(new: str, say, patience: float) -> None:  # type: ignore[no-untyped-def]
    """Wait until the first task has copied. Raises ConfigError when it does not come."""
    started, pause = time.monotonic(), 0.05
    while not os.path.exists(os.path.join(new, MARKER)):
        if time.monotonic() - started > patience:
            raise ConfigError("cannot resume: the checkpoints were not copied within %d s" % patience)
        # The folder is on a network volume, where other machines' changes raise no event.
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)


def start_preparing(config: TaskConfig, say, done, loop) -> None:  # type: ignore[no-untyped-def]
    """Run prepare() in a thread; in the loop, call say(text) for each line and at last done(problem)."""
    import _thread

    lines, result = [], []  # type: ignore[var-annotated]
    told, tell = os.pipe()

    def work() -> None:
        problem = ""
        try:
            prepare(config, lambda text: (lines.append(text), os.write(tell, b"."))) 
        except ConfigError as error:
            problem = str(error)
        except Exception as error:
            # Whatever it was, the task must end with a reason instead of waiting for ever.
            problem = "cannot prepare the task: %r" % error
        result.append(problem)
        os.write(tell, b".")

    def heard(_events: int) -> None:
        os.read(told, 512)
        while lines:
            say(lines.pop(0))
        if result:
            loop.off_fd(told)
            done(result[0])

    loop.on_fd(told, select.POLLIN, heard)
    _thread.start_new_thread(work, ())
