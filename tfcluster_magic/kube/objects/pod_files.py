"""The files that a run's pods find below /tfcluster: our runtime, `task.json`, the program.

Pure but for the package's own files. Promises that they fit into one ConfigMap, or an error that
says what is too large; a program that is too large for the record stays where the launch has put
it, in the workspace.

Ref: https://kubernetes.io/docs/concepts/configuration/configmap/
"""

from __future__ import annotations

import base64
import io
import json
import posixpath
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...program import snapshots
from ...spec import Metadata, Spec, TFCluster, task_file
from ...spec.names import parse_ref
from ...spec.quantities import format_bytes
from ..api import labels
from .policy import Policy

ROOT = "/tfcluster"
RUNTIME = Path(__file__).parents[2] / "runtime"
RUNTIME_FILE = "runtime.zip"
TASK_FILE = "task.json"
LIMIT = 1 << 20
"""Bytes that a ConfigMap may hold. Ref: concepts/configuration/configmap, "Motivation"."""
ADDRESSES = "{name}-{type}-{index}.{name}"
BEACON = 2224
"""Port on which a task's process 1 listens while its In-Graph server is in use."""
HOLD_OFF = 7.0
"""Seconds that a replaced pod waits where all workers have to start together.

The Job's controller replaces a failed pod after 10 s, two seconds late at the most, and the window
in which its failure is judged is open for 15 s: a program that starts sooner finds the peers of an
attempt that is about to end.
"""


@dataclass(frozen=True)
class Files:
    """Content by key, and the path below ROOT at which a pod finds each key."""

    texts: Mapping[str, str]
    binaries: Mapping[str, str]
    items: tuple[Mapping[str, object], ...]


def files(cluster: TFCluster, policy: Policy, addresses: str = ADDRESSES) -> Files:
    """Everything that the ConfigMap of a run holds.

    Args:
        cluster: the run.
        policy: of the administrator.
        addresses: the host of each task, with `{name}`, `{type}` and `{index}`.

    Raises:
        InvalidRequest: it is larger than a ConfigMap may be, or there is no workspace for a large
            program.
        TFClusterError: the program in the record was altered.
    """
    texts: dict[str, str] = {}
    binaries: dict[str, str] = {}
    items: list[dict[str, object]] = []

    def put(path: str, content: bytes, executable: bool = False) -> None:
        key = _key(path, len(items))
        try:
            texts[key] = content.decode()
        except UnicodeDecodeError:
            binaries[key] = base64.b64encode(content).decode()
        mode = {"mode": 0o555} if executable else {}
        items.append({"key": key, "path": path, **mode})

    put(TASK_FILE, _described(cluster, policy, addresses))
    binaries[RUNTIME_FILE] = runtime()
    items.append({"key": RUNTIME_FILE, "path": RUNTIME_FILE})
    program = cluster.spec.program
    if program is not None and program.files is not None:
        for path, file in snapshots.load(program, Path()).items():
            put(f"program/{path}", file.content, file.executable)
    _check_size(cluster.spec, texts, binaries)
    return Files(texts, binaries, tuple(items))


@cache
def runtime() -> str:
    """The runtime's sources as a zip, which Python runs as it is, in base64.

    One file and a third of their size: what a pod has of a ConfigMap stands in it, and each of its
    changes goes through all of that. Ref: https://docs.python.org/3/library/zipapp.html
    """
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as packed:
        for path in sorted(RUNTIME.rglob("*.py")):
            # Without a date, so that the same sources are the same bytes.
            head = zipfile.ZipInfo(path.relative_to(RUNTIME).as_posix())
            packed.writestr(head, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return base64.b64encode(found.getvalue()).decode()


def output_dir(metadata: Metadata, policy: Policy) -> str:
    """The run's own folder on the log volume."""
    return posixpath.join(policy.log_path, metadata.cluster, str(metadata.run))


def program_dir(spec: Spec, policy: Policy) -> str:
    """Where a task finds the snapshot's files.

    Raises:
        InvalidRequest: it lies in a workspace, and there is none.
    """
    program = spec.program
    if program is None or program.files is not None:
        return f"{ROOT}/program"
    if not policy.workspace_claim:
        allowed = _(
            "tasks here see no workspace, so a program has to travel in the record: keep it "
            "below {limit}, and its data elsewhere"
        ).format(limit=format_bytes(snapshots.INLINE_BYTES))
        raise InvalidRequest([Problem("spec.program", program.source, allowed)])
    return str(snapshots.stored_folder(Path(policy.workspace_path), program.sha256))


def _described(cluster: TFCluster, policy: Policy, addresses: str) -> bytes:
    metadata, spec = cluster.metadata, cluster.spec
    resume_from = None
    if spec.resume_from is not None:
        name, run = parse_ref(spec.resume_from)
        resume_from = posixpath.join(policy.log_path, name, str(run))
    described = task_file.describe(
        metadata,
        spec,
        program_dir=program_dir(spec, policy),
        data_dir=policy.data_path,
        output_dir=output_dir(metadata, policy),
        resume_from=resume_from,
    )
    described |= {
        "addressTemplate": addresses,
        "port": labels.PORT,
        "beacon": BEACON,
        "ownFolder": True,
        "holdOff": HOLD_OFF,
        "interpreter": spec.interpreter,
        "home": policy.workspace_path if policy.workspace_claim else None,
    }
    return (json.dumps(described, ensure_ascii=False, indent=1) + "\n").encode()


def _key(path: str, number: int) -> str:
    """A name that a ConfigMap allows: the path where that can be one, else the file's number."""
    key = path.replace("/", "--")
    plain = re.fullmatch(r"[A-Za-z0-9._-]{1,253}", key) and "--" not in path
    return key if plain else f"file-{number:05}"


def _check_size(spec: Spec, texts: Mapping[str, str], binaries: Mapping[str, str]) -> None:
    sizes = {key: len(text.encode()) for key, text in texts.items()}
    sizes |= {key: len(text) * 3 // 4 for key, text in binaries.items()}
    size = sum(sizes.values())
    if size <= LIMIT:
        return
    of_task = sizes[TASK_FILE]
    what = "spec.env" if of_task > LIMIT // 2 else "spec.program"
    shown = len(spec.env) if what == "spec.env" else (spec.program and spec.program.source)
    allowed = _(
        "the files of a run may be {limit} together, and these are {size}: keep large values in "
        "a file of the data volume"
    ).format(limit=format_bytes(LIMIT), size=format_bytes(size))
    raise InvalidRequest([Problem(what, shown, allowed)])
