"""Starts readers, one for each person, as forks of itself: `python -I -m …console.nursery FD`.

Promises that what all of them have in common is loaded once, so that those of hundreds of people
start within seconds and cost a MiB or two each; that each has become its person, for good, before
it does anything else; that it knows nothing itself but its program, and ends with the console; and
that it ends no process but readers of its own that have not ended yet.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import traceback

import msgspec

from ....backends.local.store import Record
from ....spec import Model, Status
from . import reader

LONGEST = 256 * 1024
"""Bytes of what is said to it at once: somebody's environment is the most."""


class Begin(Model, frozen=True):
    """A reader is wanted; `uid` None is who we are. The socket it answers on comes along."""

    environ: dict[str, str]
    uid: int | None = None
    gid: int = 0
    groups: tuple[int, ...] = ()


class End(Model, frozen=True):
    """This reader is to be ended."""

    pid: int


class Said(Model, frozen=True, omit_defaults=True):
    """One of both."""

    begin: Begin | None = None
    end: End | None = None


def _become(wanted: Begin) -> None:
    if wanted.uid is not None:
        os.setgroups(wanted.groups)
        os.setgid(wanted.gid)
        os.setuid(wanted.uid)
    os.environ.clear()
    os.environ.update(wanted.environ)


def _read(wanted: Begin, answers: int) -> None:
    """What the fork does: it never comes back from here."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the console ends it
        _become(wanted)
        with socket.socket(fileno=answers) as ours:
            reader.serve(ours.makefile("rb"), ours.makefile("wb"))
        code = 0
    except (BrokenPipeError, ConnectionResetError):  # the console has ended
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, no fork goes on as the fork server
        traceback.print_exc()
    finally:
        os._exit(code)


def _warm() -> None:
    """Have ready what each reader would make for itself."""
    for kind in (Record, Status):
        with contextlib.suppress(msgspec.MsgspecError):
            msgspec.json.decode(b"{}", type=kind)
    gc.collect()
    gc.freeze()


def serve(channel: socket.socket) -> None:
    """Do what is said until nobody says anything any more."""
    decoder = msgspec.json.Decoder(Said)
    children: set[int] = set()
    while True:
        text, sockets, _flags, _sender = socket.recv_fds(channel, LONGEST, 1)
        children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
        if not text:
            return
        said = decoder.decode(text)
        if said.begin is not None:
            pid = os.fork()
            if not pid:
                channel.close()
                _read(said.begin, sockets[0])
            children.add(pid)
            os.close(sockets[0])
            channel.send(str(pid).encode())
        elif said.end is not None and said.end.pid in children:
            os.kill(said.end.pid, signal.SIGKILL)


def main() -> None:
    """Serve on the socket whose number was given."""
    os.dup2(2, 1)  # a stray print is no answer
    _warm()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)


if __name__ == "__main__":
    main()
