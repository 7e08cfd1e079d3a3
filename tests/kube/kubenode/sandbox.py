"""A machine made of namespaces, with its own mounts, processes, network, IPC and host name.

Process 1 is `tini` on a Debian tree. When it dies, the kernel ends every process in the sandbox,
and with the last process every mount, loop device and interface. So nothing needs to be undone.
Only cgroups live longer; `cgroups.remove` deletes them. A sandbox never changes the machine's own
mounts, interfaces or firewall.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from . import cgroups, debian
from .commands import SYSTEM_PATH, wait_until
from .errors import NodeError
from .processes import alive, children, members, namespace_of, parent

SCRIPT = Path(__file__).with_name("sandbox.sh")
ANOTHER = "another cluster: make test-kube KUBECONFIG=/path CLUSTER=/path.toml"
DEVICES = ("/dev/fuse", "/dev/loop-control")
NEEDED = ("unshare", "nsenter", "mount", "pivot_root")


def check_machine() -> None:
    """Check that this user and this kernel can make a sandbox.

    Raises:
        NodeError: the user is not root, or a tool or a kernel feature is missing; the message names
            it.
    """
    if os.geteuid() != 0:
        raise NodeError(
            "A Kubernetes node needs root on Linux: it makes namespaces, mounts and cgroups. "
            f"Run it as root, or use {ANOTHER}"
        )
    missing = [
        tool
        for tool in NEEDED
        if not shutil.which(tool, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    ]
    if missing:
        raise NodeError(f"missing: {', '.join(missing)}. Do: apt-get install util-linux mount")
    supported = Path("/proc/filesystems").read_text().split()
    needed = ("overlay", "fuse", "xfs", "tmpfs")
    lacking = [kind for kind in needed if kind not in supported and not _loaded(kind)]
    if lacking:
        raise NodeError(
            f"This kernel has no {', '.join(lacking)}: load the module or use another machine."
        )
    absent = [device for device in DEVICES if not Path(device).exists()]
    if absent:
        raise NodeError(f"There is no {', '.join(absent)}. In a container, start it privileged.")
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        raise NodeError(
            f"This machine lets root make no namespaces ({tried.stderr.strip()}). "
            f"Start this container privileged, or use {ANOTHER}"
        )


def _loaded(module: str) -> bool:
    """Load a kernel module; return whether that worked."""
    modprobe = shutil.which("modprobe")
    if not modprobe:
        return False
    return subprocess.run([modprobe, module], capture_output=True, check=False).returncode == 0


def begin(folder: Path, host_name: str, cgroup: str, binds: dict[Path, str]) -> int:
    """Start a sandbox and return its process 1, as a process id of this machine.

    Args:
        folder: a folder for the sandbox's log and for changes to its root (overlayfs upper).
        host_name: the sandbox's host name.
        cgroup: the sandbox's cgroup in each hierarchy; servers are in `<cgroup>/system`.
        binds: folders of the machine, each with its path in the sandbox.

    Raises:
        NodeError: the kernel refused a step; the message has the script's output.
    """
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for source in binds:
        source.mkdir(parents=True, exist_ok=True)
    log = folder / "sandbox.log"
    words = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
    words += ["sh", str(SCRIPT)]
    words += [str(debian.tree("node")), str(folder), host_name]
    words += [f"{source}={target}" for source, target in binds.items()]
    with log.open("w") as output:
        outer = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
            env={"PATH": SYSTEM_PATH},
        )  # fmt: skip
    try:
        wait_until(
            lambda: children(outer.pid), "the first process of a sandbox", seconds=90, every=0.01
        )
        first = children(outer.pid)[0]
        cgroups.join(first, f"{cgroup}/system")
        assert outer.stdin
        outer.stdin.close()  # this tells the script that its process is in the cgroup
        wait_until(
            lambda: log.read_text().startswith("ready") or outer.poll() is not None,
            "the sandbox", seconds=90, every=0.01,
        )  # fmt: skip
        if not log.read_text().startswith("ready"):
            raise NodeError(
                f"The kernel refused a sandbox:\n{log.read_text().strip()}\nIf {folder} is on an "
                "overlay, as in most containers, set XDG_STATE_HOME to a folder on a real disk."
            )
    except NodeError:
        outer.kill()
        cgroups.remove(cgroup)
        raise
    return first


def end(first: int, seconds: float = 90) -> None:
    """Kill a sandbox's process 1 and wait until everything in it has ended."""
    namespace = namespace_of(first)
    # The parent of process 1, `unshare`, has the same mounts, which disappear only when both end.
    above = parent(first)
    keeper = above if namespace_of(above, "mnt") == namespace_of(first, "mnt") else 0
    try:
        os.kill(first, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_until(
        lambda: not alive(first) and not alive(keeper) and not list(members(namespace)),
        f"the processes of sandbox {first}", seconds=seconds,
    )  # fmt: skip
