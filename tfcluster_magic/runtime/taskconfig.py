"""What one task is told: TF_CONFIG, addresses, flags, environment and command, computed from task.json.

Pure but for reading the file: it decides nothing about processes. `tfcluster_magic/tf_config.py` holds the
same rules for the package's own use, and a test keeps the two equal. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import os
import sys

# The order in which people read task types, and those that TensorFlow has in "cluster": an evaluator is
# never part of it (MultiWorkerMirroredStrategy and ParameterServerStrategy both refuse it there).
CLUSTER_TYPES = ("chief", "worker", "ps")
# Servers need at least 8 inter-op threads: with 1 ParameterServerStrategy deadlocks, with 2 two clients do.
MIN_INTEROP_THREADS = 8
# Keepalive turns the silent loss of a node into an error within seconds instead of a hang; a proxy in the
# environment breaks TensorFlow's gRPC even to 127.0.0.1.
GRPC_OPTIONS = (
    "grpc.keepalive_time_ms=10000,grpc.keepalive_timeout_ms=5000,grpc.enable_http_proxy=0"
)
PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY")
PRIVATE_PREFIXES = ("JUPYTERHUB_", "JPY_")
PRIVATE_VARIABLES = ("TFCLUSTER_REPORT_FD", "TFCLUSTER_TERMINATION_LOG", "TFCLUSTER_IDLE_SAMPLE")
HERE = os.path.dirname(os.path.abspath(__file__))


class ConfigError(Exception):
    """The task cannot be started as it was described; the message is for people."""


class TaskConfig:
    """One task of the run that task.json describes."""

    def __init__(self, data: dict, task: str) -> None:
        self.data = data
        self.task = task
        self.task_type, _, index = task.rpartition("-")
        if not index.isdigit() or int(index) >= int(data["counts"].get(self.task_type, 0)):
            known = ", ".join("%s 0..%d" % (t, n - 1) for t, n in data["counts"].items() if n)
            raise ConfigError("there is no task %r in this run; it has %s" % (task, known))
        self.index = int(index)
        self.in_graph = data["mode"] == "in-graph"
        self.program = data.get("program")
        self.output_dir = data["outputDir"]
        self.resume_from = data.get("resumeFrom")
        self.grace = float(data.get("grace", 10.0))
        self.addresses = self._addresses()

    @classmethod
    def load(cls, path: str, task: str) -> TaskConfig:
        """Read task.json. Raises ConfigError when it cannot be read or is of a later version."""
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
        except (OSError, ValueError) as error:
            raise ConfigError("cannot read the task's description %s: %s" % (path, error))
        if data.get("version") != 1:
            raise ConfigError(
                "%s is of version %r; this runtime reads version 1" % (path, data.get("version"))
            )
        return cls(data, task)

    def _addresses(self) -> dict:
        given = self.data.get("addresses")
        if given is not None:
            return {kind: list(hosts) for kind, hosts in given.items() if hosts}
        found = {}
        for kind, count in self.data["counts"].items():
            found[kind] = [
                "%s:%d" % (self._host(kind, index), self.data["port"]) for index in range(count)
            ]
        return {kind: hosts for kind, hosts in found.items() if hosts}

    def _host(self, kind: str, index: int) -> str:
        template = self.data["addressTemplate"]
        return str(template.format(name=self.data["name"], type=kind, index=index))

    @property
    def cluster(self) -> dict:
        """TensorFlow's cluster: host:port by type, without evaluators."""
        return {kind: self.addresses[kind] for kind in CLUSTER_TYPES if self.addresses.get(kind)}

    @property
    def tf_config(self) -> dict:
        """The value of TF_CONFIG."""
        return {"cluster": self.cluster, "task": {"type": self.task_type, "index": self.index}}

    @property
    def port(self) -> int:
        """The task's own port; 0 when nobody may connect to it (evaluator)."""
        own = self.cluster.get(self.task_type)
        return int(own[self.index].rpartition(":")[2]) if own else 0

    @property
    def hosts(self) -> list:
        """Hosts of the whole cluster, each once, in order."""
        seen = {}
        for hosts in self.cluster.values():
            for address in hosts:
                seen[address.rpartition(":")[0].strip("[]")] = True
        return list(seen)

    @property
    def copies_checkpoints(self) -> bool:
        """Whether this task brings the checkpoints of `resumeFrom`: the chief, else worker-0."""
        first = "chief" if self.data["counts"].get("chief") else "worker"
        return self.task_type == first and self.index == 0

    @property
    def is_shell(self) -> bool:
        """Whether the program is a shell script."""
        return bool(self.program) and self.program["entrypoint"].endswith(".sh")

    @property
    def opens_port(self) -> bool:
        """Whether the task is ready only when its own port accepts."""
        return bool(self.port) and (self.in_graph or bool(self.program.get("serves")))

    def flags(self) -> list:
        """Address flags that the program mentions and the user did not give."""
        values = {
            "ps_hosts": ",".join(self.addresses.get("ps", [])),
            "worker_hosts": ",".join(self.addresses.get("worker", [])),
            "job_name": self.task_type,
            "task_index": str(self.index),
            "data_dir": self.data["dataDir"],
            "log_path": self.output_dir,
        }
        given = {a.lstrip("-").partition("=")[0] for a in self.program.get("arguments", []) if a[:1] == "-"}
        wanted = self.program.get("flags", [])
        return ["--%s=%s" % (n, values[n]) for n in values if n in wanted and n not in given]

    def command(self, find) -> list:  # type: ignore[no-untyped-def]
        """The child's argv; `find(name)` looks a program up on PATH. Raises ConfigError."""
        if self.in_graph:
            server = os.path.join(HERE, "tf_server.py")
            return [sys.executable, server, "--server", self.data.get("server", "native")]
        script = os.path.join(self.program["dir"], self.program["entrypoint"])
        if not os.path.isfile(script):
            raise ConfigError("the program's file %s does not exist" % script)
        tail = [script] + self.flags() + list(self.program.get("arguments", []))
        if script.endswith(".py"):
            return [sys.executable, "-u"] + tail
        if self.is_shell:
            shell = find("bash") or find("sh")
            if not shell:
                raise ConfigError("%s needs a shell, and neither bash nor sh is on PATH" % script)
            return [shell] + tail
        raise ConfigError("%s can not be started: a program ends in .py or .sh" % script)

    def environment(self, base: dict) -> dict:
        """The child's environment: `base`, the user's, ours; defaults never replace what is set."""
        env = dict(base)
        env.update(self.data.get("env") or {})
        for name in list(env):
            if name.startswith(PRIVATE_PREFIXES) or name in PRIVATE_VARIABLES:
                del env[name]
        env["TF_CONFIG"] = json.dumps(self.tf_config)
        env.update(
            TFCLUSTER_CLUSTER=self.data["cluster"],
            TFCLUSTER_RUN=str(self.data["run"]),
            TFCLUSTER_NAME=self.data["name"],
            TFCLUSTER_TASK=self.task,
            TFCLUSTER_TASK_TYPE=self.task_type,
            TFCLUSTER_TASK_INDEX=str(self.index),
            TFCLUSTER_DATA_DIR=self.data["dataDir"],
            TFCLUSTER_OUTPUT_DIR=self.output_dir,
            TFCLUSTER_ATTEMPT=base.get("TFCLUSTER_ATTEMPT", "1"),
            TFCLUSTER_RESUME_FROM=self.resume_from or "",
            PYTHONUNBUFFERED="1",
        )
        for name, value in self.defaults().items():
            env.setdefault(name, value)
        if any(env.get(name) for name in PROXY_VARIABLES):
            direct = env.get("no_grpc_proxy") or env.get("no_proxy") or env.get("NO_PROXY") or ""
            env["no_grpc_proxy"] = ",".join([d for d in direct.split(",") if d] + self.hosts)
        if self.program:
            path = [os.path.join(HERE, "site"), env.get("PYTHONPATH", "")]
            env["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
        self._guard(env)
        return env

    def defaults(self) -> dict:
        """TensorFlow's threads and gRPC options, for variables that nobody set."""
        limit = (self.data.get("threads") or {}).get(self.task_type)
        usable = limit or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else limit
        found = {"TF_GRPC_DEFAULT_OPTIONS": GRPC_OPTIONS}
        if limit:
            found["TF_NUM_INTRAOP_THREADS"] = str(limit)
        found["TF_NUM_INTEROP_THREADS"] = str(max(MIN_INTEROP_THREADS, usable or 1))
        return found

    def _guard(self, env: dict) -> None:
        guard = self.data.get("loopback")
        if not guard:
            return
        # The dynamic linker only warns about a preload that it cannot load, and the ports would be open to
        # the network: so say it here.
        if not os.path.isfile(guard):
            raise ConfigError("the loopback guard %s is missing; reinstall tfcluster-magic" % guard)
        if ":" in guard or " " in guard:
            raise ConfigError(
                "the loopback guard %r has a space or colon in its path, which the dynamic linker "
                "cannot preload; install tfcluster-magic in a folder without them" % guard
            )
        env["LD_PRELOAD"] = ":".join(p for p in (guard, env.get("LD_PRELOAD", "")) if p)
