"""The configuration of one task from task.json: its addresses, environment and command.

The only input is this file. `tf_config` makes TF_CONFIG, flags and TensorFlow's defaults. Standard
library only, Python 3.8 syntax.
"""

from __future__ import annotations

import json
import os
import stat
import sys

import tf_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tf_config import TFConfig

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY")
# Variables that a program does not get: secrets of the hub and of Jupyter kernels, and variables
# that only this runtime needs.
PRIVATE_PREFIXES = ("JUPYTERHUB_", "JPY_", "JUPYTER_TOKEN")
PRIVATE = (
    "TFCLUSTER_REPORT_FD",
    "TFCLUSTER_TERMINATION_LOG",
    "TFCLUSTER_IDLE_SAMPLE",
    "TFCLUSTER_PATIENCE",
    "TFCLUSTER_INDEX_FAILURES",
    "TFCLUSTER_INDEX_IGNORED",
)
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# Maximum bytes of a task.json.
MOST_BYTES = 8 << 20
# The folder of the runtime's modules; in a pod, the zip that contains them.
HERE = os.path.dirname(os.path.abspath(__file__))


def failures(env: Mapping[str, str]) -> tuple[int, int]:
    """Return how often a Job has replaced this task's pod: (after failures, after disruptions). The
    second number is 0 if the Job does not count disruptions separately
    (`kube/objects/pod_template.py`).
    """
    said = [env.get(f"TFCLUSTER_INDEX_{name}", "") for name in ("FAILURES", "IGNORED")]
    return tuple(int(each) if each.isdigit() else 0 for each in said)  # type: ignore[return-value]


def attempt(env: Mapping[str, str]) -> str:
    """Return the number of this start of the task, from 1. It comes from the backend, or in a pod
    from the number of pods that the Job has replaced.
    """
    return env.get("TFCLUSTER_ATTEMPT") or str(1 + sum(failures(env)))


class ConfigError(Exception):
    """The task cannot be started as it was described. The text is for users. The attribute
    `message` has the same text as a code of `spec/message_table.py` and its values; None if the
    text has no code.
    """

    def __init__(self, text: str, code: str = "", **values: str) -> None:
        super().__init__(text)
        self.message = {"code": code, "params": values} if code else None


def _content(path: str) -> bytes:
    """Return the content of a regular file of at most MOST_BYTES. The path may be a link, as it is
    in a pod. Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is not a regular file")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"it is larger than {MOST_BYTES} bytes")
    return content


class TaskConfig:
    """One task of the run that task.json describes."""

    def __init__(self, data: dict[str, Any], task: str) -> None:
        self.data = data
        self.task = task
        self.counts: dict[str, int] = {kind: n for kind, n in data["counts"].items() if n}
        self.task_type, _, index = task.rpartition("-")
        if not index.isdigit() or int(index) >= self.counts.get(self.task_type, 0):
            known = ", ".join(f"{kind}-0..{n - 1}" for kind, n in self.counts.items())
            raise ConfigError(f"there is no task {task!r} in this run; it has {known}")
        self.index = int(index)
        self.in_graph: bool = data["mode"] == "in-graph"
        self.program: dict[str, Any] = data.get("program") or {}
        self.output_dir: str = data["outputDir"]
        self.resume_from: str | None = data.get("resumeFrom")
        self.grace = float(data.get("grace", 10.0))
        self.addresses = self._addresses()

    @classmethod
    def load(cls, path: str, task: str) -> TaskConfig:
        """Return the configuration of `task` from the file `path` (task.json). Raises ConfigError
        if the file is unreadable or has another version.
        """
        try:
            data = json.loads(_content(path))
            version = data.get("version") if isinstance(data, dict) else None
            if version != 1:
                raise ConfigError(f"{path} is of version {version!r}; this runtime reads version 1")
            return cls(data, task)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else error
            raise ConfigError(f"cannot read the task's description {path}: {why}") from None
        except RecursionError:
            raise ConfigError(f"cannot read the task's description {path}: it is nested") from None

    def _addresses(self) -> dict[str, list[str]]:
        given = self.data.get("addresses")
        if given is not None:
            return {kind: list(hosts) for kind, hosts in given.items() if hosts}
        template, port = self.data["addressTemplate"], self.data["port"]
        return {
            kind: [
                f"{template.format(name=self.data['name'], type=kind, index=index)}:{port}"
                for index in range(count)
            ]
            for kind, count in self.counts.items()
        }

    @property
    def cluster(self) -> dict[str, list[str]]:
        """TensorFlow's cluster: host:port by type, without evaluators and empty types."""
        return tf_config.tf_cluster(self.addresses)

    @property
    def tf_config(self) -> TFConfig:
        """The value of TF_CONFIG."""
        return tf_config.build(self.addresses, self.task_type, self.index)

    @property
    def port(self) -> int:
        """The task's own port; 0 for an evaluator, to which no task connects."""
        own = self.cluster.get(self.task_type)
        return int(own[self.index].rpartition(":")[2]) if own else 0

    @property
    def hosts(self) -> list[str]:
        """The hosts of the whole cluster, each once, in order."""
        every = [address for hosts in self.cluster.values() for address in hosts]
        return list(dict.fromkeys(_host(each) for each in every))

    def needs(self, host: str, env: Mapping[str, str]) -> bool:
        """Return whether the task cannot start before this host has an address.

        Parameter servers and servers of an In-Graph cluster are always needed, because they do not
        end before other tasks. A worker that has ended never gets an address again, because a pod's
        address disappears with the pod.
        """
        lasting = ("chief", "worker", "ps") if self.in_graph else ("ps",)
        if any(host == _host(a) for kind in lasting for a in self.cluster.get(kind, [])):
            return True
        serves = self.program.get("serves") or self.program.get("mayServe")
        return bool(serves and not self.counts.get("ps") and not sum(failures(env)))

    @property
    def owner(self) -> str:
        """The uid of the run that must own the output folder; empty if the owner is not checked."""
        return str(self.data.get("uid") or "") if self.data.get("ownFolder") else ""

    @property
    def copies_checkpoints(self) -> bool:
        """Whether this task copies the checkpoints of `resumeFrom`: the chief, else worker-0."""
        return self.task == ("chief-0" if self.counts.get("chief") else "worker-0")

    @property
    def is_shell(self) -> bool:
        """Whether the program is a shell script, or the command of a shell."""
        first = (self.program.get("command") or [""])[0]
        return os.path.basename(first) in SHELLS or str(
            self.program.get("entrypoint") or ""
        ).endswith(".sh")

    @property
    def mark(self) -> str:
        """The value of TFCLUSTER_RUN_UID, by which all processes of this run can be recognized: the
        run's uid. A run that was started from a printed manifest has no uid; its value is the run's
        name.
        """
        found: str = self.data.get("uid") or self.data["name"]
        return found

    @property
    def working_dir(self) -> str:
        """The folder in which the program should start; empty if none was given."""
        said = self.program.get("workingDir")
        return os.path.normpath(os.path.join(self.program["dir"], said)) if said else ""

    @property
    def start_dir(self) -> str:
        """The folder in which the program starts: `working_dir`, or the output folder if
        `working_dir` does not exist.
        """
        return self.working_dir if os.path.isdir(self.working_dir) else self.output_dir

    @property
    def in_pod(self) -> bool:
        """Whether the task runs in a pod, whose own disk is deleted with the pod."""
        return bool(self.data.get("ownFolder"))

    @property
    def reports_usage(self) -> bool:
        """Whether the exit report has the task's usage, for advice on a schedule's next run."""
        return bool(self.data.get("reportsUsage"))

    @property
    def writes_results(self) -> bool:
        """Whether the program may write event files and checkpoints; parameter servers write
        none.
        """
        return not self.in_graph and self.task_type != "ps"

    @property
    def opens_port(self) -> bool:
        """Whether the task is ready only when its own port accepts connections. A single worker
        with MultiWorkerMirroredStrategy opens no port.
        """
        serves = bool(self.program.get("serves")) and self._has_peers
        return bool(self.port) and (self.in_graph or serves)

    @property
    def _has_peers(self) -> bool:
        return sum(map(len, self.cluster.values())) > 1

    @property
    def beacon(self) -> int:
        """The port that is open while an In-Graph server is in use; 0 for none."""
        return int(self.data.get("beacon") or 0) if self.in_graph else 0

    @property
    def started_beacon(self) -> int:
        """The port that a pod opens when its program counts as started; 0 for none."""
        asked = self.opens_port or (self.program.get("byHand") and self.port and self._has_peers)
        return int(self.data.get("beacon") or 0) if asked and not self.in_graph else 0

    @property
    def start_window(self) -> float:
        """Seconds from the program's start after which its use of CPU counts as a sign of start."""
        return 0.5 * float(self.data.get("startTimeout") or 600.0)

    def hold_off(self, env: Mapping[str, str]) -> float:
        """Return the seconds for which a pod that replaces a failed one waits before its program
        starts.

        Without parameter servers, the operator decides after a failure whether all workers start
        again together or the run fails. A Job replaces the pod before the operator has decided, so
        the program in the new pod waits.
        """
        together = self.task_type in ("chief", "worker") and not self.counts.get("ps")
        trainers = self.counts.get("chief", 0) + self.counts.get("worker", 0)
        waits = together and trainers > 1 and not self.in_graph and failures(env)[0] > 0
        return float(self.data.get("holdOff") or 0.0) if waits else 0.0

    def flags(self) -> list[str]:
        """Return the flags, with their values, that are put before the user's own arguments."""
        return tf_config.flags(
            self.program.get("flags", []),
            self.addresses,
            self.task_type,
            self.index,
            data_dir=self.data["dataDir"],
            output_dir=self.output_dir,
        )

    @property
    def interpreter(self) -> str:
        """The Python interpreter of the program or server; by default the one of this process."""
        chosen: str = self.data.get("interpreter") or sys.executable
        return chosen

    def command(self, find: Callable[[str], str]) -> list[str]:
        """Return the child's argv; `find(name)` returns the path of a program on PATH. Raises
        ConfigError.
        """
        if self.in_graph:
            kind = self.data.get("server", "native")
            return [self.interpreter, HERE, "tf_server", "--server", kind]
        if self.program.get("command"):
            first, *rest = self.program["command"]
            if not (found := first if "/" in first else find(first)):
                raise ConfigError(
                    f"there is no command {first} where the task runs",
                    code="CommandNotThere",
                    command=first,
                )
            return [found, *rest, *self.flags(), *self.program.get("arguments", [])]
        script = os.path.join(self.program["dir"], self.program["entrypoint"])
        if not os.path.isfile(script):
            raise ConfigError(f"its file {script} does not exist")
        if not os.access(script, os.R_OK):
            raise ConfigError(f"its file {script} may not be read by this user")
        tail = [script, *self.flags(), *self.program.get("arguments", [])]
        if script.endswith(".py"):
            return [self.interpreter, "-u", *tail]
        if not self.is_shell:
            raise ConfigError(f"{script} is neither Python (.py) nor a shell script (.sh)")
        shell = find("bash") or find("sh")
        if not shell:
            raise ConfigError(f"{script} needs a shell, and neither bash nor sh is on PATH")
        return [shell, *tail]

    def environment(self, base: dict[str, str]) -> dict[str, str]:
        """Return the child's environment: `base`, the user's variables, and those that TFCluster
        sets. If a variable is in several of these, the last one counts. Raises ConfigError.
        """
        home = {"HOME": self.data["home"]} if self.data.get("home") else {}
        env = {**base, **home, **(self.data.get("env") or {})}
        for name in list(env):
            if name.startswith(PRIVATE_PREFIXES) or name in PRIVATE:
                del env[name]
        env.update(
            TF_CONFIG=json.dumps(self.tf_config),
            TFCLUSTER_CLUSTER=self.data["cluster"],
            TFCLUSTER_RUN=str(self.data["run"]),
            TFCLUSTER_NAME=self.data["name"],
            TFCLUSTER_RUN_UID=self.mark,
            TFCLUSTER_TASK=self.task,
            TFCLUSTER_TASK_TYPE=self.task_type,
            TFCLUSTER_TASK_INDEX=str(self.index),
            TFCLUSTER_DATA_DIR=self.data["dataDir"],
            TFCLUSTER_OUTPUT_DIR=self.output_dir,
            TFCLUSTER_ATTEMPT=attempt(base),
            TFCLUSTER_RESUME_FROM=self.resume_from or "",
            PYTHONUNBUFFERED="1",
        )
        for name, value in self.defaults().items():
            env.setdefault(name, value)
        env.pop("TFCLUSTER_SCHEDULED_FOR", None)
        if self.data.get("scheduledFor"):
            env["TFCLUSTER_SCHEDULED_FOR"] = self.data["scheduledFor"]
        env.pop("TFCLUSTER_PORT", None)
        if self.port:
            env["TFCLUSTER_PORT"] = str(self.port)
        if any(env.get(name) for name in PROXIES):
            direct = env.get("no_grpc_proxy") or env.get("no_proxy") or env.get("NO_PROXY") or ""
            env["no_grpc_proxy"] = ",".join([*filter(None, direct.split(",")), *self.hosts])
        if not self.in_graph:
            path = (os.path.join(HERE, "site"), env.get("PYTHONPATH", ""))
            env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
            # `python` in a shell script is this interpreter, even if its venv is not activated.
            path = (os.path.dirname(self.interpreter), env.get("PATH") or os.defpath)
            env["PATH"] = os.pathsep.join(path)
        if self.data.get("loopback"):
            path = (_preloadable(self.data["loopback"]), env.get("LD_PRELOAD", ""))
            env["LD_PRELOAD"] = ":".join(filter(None, path))
        return env

    def defaults(self) -> dict[str, str]:
        """Return environment variables with TensorFlow's numbers of threads and its gRPC options. A
        user's own values replace them.
        """
        limit = (self.data.get("threads") or {}).get(self.task_type)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return tf_config.environment_defaults(limit, cores, self.counts, in_graph=self.in_graph)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _preloadable(guard: str) -> str:
    # The dynamic linker only warns about a library of LD_PRELOAD that it cannot load, and the ports
    # would then be open to the network.
    if not os.path.isfile(guard):
        raise ConfigError(f"the loopback guard {guard} is missing; reinstall tfcluster-magic")
    if ":" in guard or " " in guard:
        raise ConfigError(
            f"the loopback guard {guard!r} has a space or colon in its path, which the dynamic "
            "linker cannot preload; install tfcluster-magic in a folder without them"
        )
    return guard
