"""The guard, a library that makes TensorFlow's servers listen only on loopback, in tasks and in a
kernel that is already running.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import elf
from support.guard_clients import CLIENT
from support.loopback_attack import NEIGHBOUR

from tfcluster_magic.backends.local.task_processes import reserve_ports
from tfcluster_magic.client.strategy import guard_this_process
from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.spec import TaskType, task_file

SOURCE = Path(task_file.__file__).parents[1] / "runtime" / "loopback_guard.c"
# Code of a function that returns the listening sockets of its own process, as (address, port) in
# hexadecimal.
LISTENING = """
def listening():
    import os
    own = set()
    for fd in os.listdir("/proc/self/fd"):
        try: own.add(os.readlink("/proc/self/fd/" + fd)[8:-1])
        except OSError: pass
    rows = [row.split() for t in ("tcp", "tcp6") for row in open("/proc/net/" + t)]
    return [r[1] for r in rows if r[3] == "0A" and r[9] in own]
"""


def python(script: str, **env: str) -> list[object]:
    """Run `script` in a fresh Python; return the JSON values that it prints, one in each line."""
    import os

    done = subprocess.run(
        [sys.executable, "-c", LISTENING + textwrap.dedent(script)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in '[{"0123456789']


@pytest.fixture(scope="module")
def guard() -> str:
    """Return the path of the guard's library as the package builds it."""
    path = task_file.guard_path()
    assert path, "the package is installed without its guard"
    return path


def test_source_is_clean(tmp_path: Path) -> None:
    """The guard compiles without a warning."""
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", str(tmp_path / "g.so"), str(SOURCE), "-ldl"], check=True)


@pytest.mark.parametrize(
    ("family", "asked", "got"),
    [
        ("AF_INET", "0.0.0.0", "127.0.0.1"),
        ("AF_INET", "127.0.0.2", "127.0.0.2"),
        ("AF_INET6", "::ffff:0.0.0.0", "::ffff:127.0.0.1"),
        ("AF_INET6", "::1", "::1"),
    ],
)
def test_wildcard_becomes_loopback(guard: str, family: str, asked: str, got: str) -> None:
    """A socket for every address is bound to loopback; a socket that names an address is bound to
    that address.
    """
    script = f"""
        import json, socket
        s = socket.socket(socket.{family}); s.bind(({asked!r}, 0))
        print(json.dumps(s.getsockname()[0]))
    """
    assert python(script, LD_PRELOAD=guard) == [got]


def test_other_sockets_pass(guard: str) -> None:
    """Both kinds of IPv6 wildcard are guarded; datagram sockets and sockets of the file system are
    not.
    """
    script = """
        import json, os, socket, tempfile
        def name(family, kind, address, only=None):
            s = socket.socket(family, kind)
            if only is not None: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
            s.bind(address); return s.getsockname()
        print(json.dumps([
            name(socket.AF_INET6, socket.SOCK_STREAM, ("::", 0), 0)[0],
            name(socket.AF_INET6, socket.SOCK_STREAM, ("::", 0), 1)[0],
            name(socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0))[0],
            os.path.basename(name(socket.AF_UNIX, socket.SOCK_STREAM, tempfile.mkdtemp() + "/s")),
        ]))
    """
    assert python(script, LD_PRELOAD=guard) == [["::ffff:127.0.0.1", "::1", "0.0.0.0", "s"]]


@pytest.mark.cluster
def test_kernel_that_runs_already(guard: str) -> None:
    """After `guard_this_process()`, TensorFlow listens only on loopback and answers no other
    account; other sockets are bound as requested.
    """
    script = """
        import json, os, socket, subprocess, sys
        assert "LD_PRELOAD" not in os.environ
        from tfcluster_magic.client.strategy import guard_this_process
        print(guard_this_process())
        import tensorflow as tf
        print(json.dumps([guard_this_process(), guard_this_process()]))
        server = tf.distribute.Server({"worker": ["localhost:0"]}, job_name="worker", task_index=0)
        print(json.dumps([row.rpartition(":")[0] for row in listening()]))
        links = [os.readlink(link.path) for link in os.scandir("/proc/self/fd") if link.is_symlink()
                 and os.path.lexists(link.path)]
        print(json.dumps(sorted({link for link in links if "io_uring" in link})))
        with tf.compat.v1.Session(server.target, graph=tf.Graph()) as session:
            with session.graph.as_default():
                print(session.run(tf.constant(42)))
        accounts = [os.geteuid()] + [int(os.environ["NEIGHBOUR"])] * (os.geteuid() == 0)
        client, port = os.environ["CLIENT"], server.target.rpartition(":")[2]
        print(json.dumps([
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", client, str(account), "127.0.0.1", port],
                stdout=subprocess.PIPE, check=True,
            ).stdout.strip() != b""
            for account in accounts
        ]))
        own = socket.socket(); own.bind(("0.0.0.0", 0)); print(json.dumps(own.getsockname()[0]))
        os._exit(0)
    """
    told = {"CLIENT": CLIENT, "NEIGHBOUR": str(NEIGHBOUR)}
    before, after, addresses, rings, answer, hears, own = python(script, **told)
    assert before == 0
    assert isinstance(after, list)
    assert after[0] == after[1] >= 1
    assert addresses == ["0000000000000000FFFF00000100007F"]
    assert rings == []
    assert answer == 42
    assert hears == [True, False][: len(hears)]
    assert own == "0.0.0.0"


GUARDED = {"bind", "listen", "accept", "accept4"}
# The relocation types that the guard redirects in a running process: jump slot, data slot, pointer.
REDIRECTED = {"x86_64": {7, 6, 1}, "aarch64": {1026, 1025, 257}}[platform.machine()]
# System calls on x86_64: socket, accept, bind, listen, accept4, io_uring_setup, io_uring_enter,
# io_uring_register, pidfd_getfd.
WAYS_IN = {41, 43, 49, 50, 288, 425, 426, 427, 438}


def other_ways_in(path: Path) -> list[str]:
    """Return the calls by which the library could accept connections past the guard."""
    library = elf.Library(path)
    found = [
        f"{name} in a relocation of type {kind} + {addend}"
        for name in sorted(GUARDED)
        for _slot, kind, addend in library.slots(name)
        if kind not in REDIRECTED or addend
    ]
    others = ("io_uring_", "__libc_accept", "pidfd_getfd", "socketcall")
    found += [name for name in library.imports if name.startswith(others)]
    if library.bytes.find(b"io_uring") >= 0:
        found.append("the word io_uring")
    if platform.machine() == "x86_64":
        numbers = library.calls_by_number()
        found += [f"syscall({number})" for number in numbers if number is None or number in WAYS_IN]
        found += ["a system call without the C library"] * library.raw_calls()
    return found


def test_tensorflow_and_grpc_have_no_other_way_in() -> None:
    """TensorFlow's and gRPC's libraries accept connections only by calls that the guard
    intercepts.
    """
    packages = [Path(str(find_spec(name).origin)).parent for name in ("tensorflow", "grpc")]  # type: ignore[union-attr]
    paths = {path for package in packages for path in package.rglob("*.so*")}
    servers = {path for path in paths if "accept4" in elf.Library(path).imports}
    assert {path.name.partition(".")[0] for path in servers} >= {"libtensorflow_cc", "cygrpc"}
    assert {path.name: ways for path in paths if (ways := other_ways_in(path))} == {}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the code of one machine")
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("syscall(425, 8, 0)", "syscall(425)"),
        ("syscall(number, 0, 0)", "syscall(None)"),
        ('({ long r; __asm__("syscall" : "=a"(r) : "0"(43)); r; })', "a system call without"),
        ("io_uring_setup()", "io_uring_setup"),
        ("(long)*pointer", "accept in a relocation of type 1 + 8"),
    ],
)
def test_another_way_in_is_found(tmp_path: Path, call: str, said: str) -> None:
    """`other_ways_in`, which the test above uses, finds the call in a library that has a way past
    the guard.
    """
    source, library = tmp_path / "way.c", tmp_path / "way.so"
    pointer = "const char *pointer = (const char *)accept + 8;" if "pointer" in call else ""
    source.write_text(
        "long syscall(long, ...); long io_uring_setup(void); int accept(int, void *, void *);"
        f"{pointer} long way(volatile long *at) {{ long number = *at; return {call} + !number; }}"
    )
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    assert any(way.startswith(said) for way in other_ways_in(library))


def test_missing_guard_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the guard's library is missing, the error names the risk and says how to build the
    library.
    """
    monkeypatch.setattr(task_file, "GUARD_LIBRARY", tmp_path / "libloopback_guard.so")
    assert task_file.guard_path() is None
    with pytest.raises(TFClusterError, match=r"every network address.*build it: cc -shared"):
        guard_this_process()
    (tmp_path / "libloopback_guard.so").write_text("not a library")
    with pytest.raises(TFClusterError, match="cannot be used here"):
        guard_this_process()


# Ways to ask for a port: address family, address, and the socket options that are set before.
WAYS = {
    "plain": ("AF_INET", "127.0.0.1", ()),
    "every address": ("AF_INET", "0.0.0.0", ()),
    "as torch's store": ("AF_INET6", "::", ("SO_REUSEADDR",)),
    "as socketserver": ("AF_INET", "0.0.0.0", ("SO_REUSEADDR",)),
    "shared": ("AF_INET", "127.0.0.1", ("SO_REUSEPORT",)),
    "mapped": ("AF_INET6", "::ffff:127.0.0.1", ()),
}
SERVE = """
import json, socket, sys
def serve(port, family, address, options):
    s = socket.socket(getattr(socket, family))
    if family == "AF_INET6": s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    for option in options: s.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
    s.bind((address, port)); s.listen(); return s
def attempt(*how):
    try: serve(*how).close()
    except OSError as error: return error.strerror
    return ""
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_task_binds_its_own_port_as_if_it_were_free(guard: str, way: str) -> None:
    """A task can bind its reserved port with any address and socket options, close it, and bind it
    again at once. While it listens on this port, a second server of the task cannot bind the port;
    other processes can never bind it.
    """
    addresses, held = reserve_ports({TaskType.WORKER: 2})
    port, other = (int(each.rpartition(":")[2]) for each in addresses["worker"])
    how = (port, *WAYS[way])
    script = SERVE + textwrap.dedent(f"""
        first = serve(*{how!r})
        client = socket.create_connection(("127.0.0.1", {port}))
        first.accept()[0].close()  # we close first: what is left of it waits for a minute
        print(json.dumps([attempt({port}, "AF_INET", "127.0.0.1", ())]))
        first.close(); client.close()
        print(json.dumps([attempt(*{how!r})]))
        print(json.dumps([attempt({other}, "AF_INET", "127.0.0.1", ())]))
    """)
    try:
        told = python(script, LD_PRELOAD=guard, TFCLUSTER_PORT=str(port))
        assert told == [["Address already in use"], [""], ["Address already in use"]]
        stranger = SERVE + f"print(json.dumps([attempt({port}, 'AF_INET', '127.0.0.1', ())]))"
        assert python(stranger, LD_PRELOAD=guard) == [["Address already in use"]]
    finally:
        for bound in held:
            bound.close()
