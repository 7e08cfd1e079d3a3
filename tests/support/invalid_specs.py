"""Invalid specs with the problem of each, and its message. One table serves `validation/` and the
API server, which must refuse the same specs with the same message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOGETHER = "may have 64 KiB together"
CELL = {"kind": "cell", "source": "cell", "entrypoint": "cell.py", "sha256": "0" * 64}
SAME = "the same"


@dataclass(frozen=True)
class Wrong:
    """A spec with one mistake. `field` is the end of the wrong field's path, and `allowed` is part
    of the message.

    `kubectl` is the API server's own message. It is None if the schema accepts the spec; a comment
    gives the reason.
    """

    spec: dict[str, Any]
    field: str
    allowed: str
    kubectl: str | None = SAME

    @property
    def told_by_kubectl(self) -> str | None:
        """The text that the API server's refusal must contain."""
        return self.allowed if self.kubectl == SAME else self.kubectl

    def __str__(self) -> str:
        return f"{self.field}: {self.allowed}"


def running(**spec: Any) -> dict[str, Any]:
    """Return a spec with a program."""
    return {"program": CELL, **spec}


def workers(**resources: object) -> dict[str, Any]:
    """Return a spec with one worker and these resources."""
    return running(replicas={"worker": {"count": 1, "resources": resources}})


def using(**pods: Any) -> dict[str, Any]:
    """Return a spec with a field that only pods support."""
    return running(pods=pods)


def mounting(*paths: str) -> dict[str, Any]:
    """Return a spec with a claim at each of these paths."""
    return using(volumes=[{"claim": "images", "path": path} for path in paths])


BETWEEN_FIELDS = (
    Wrong(running(replicas={"worker": {"count": 0}}), "worker.count", "at least 1"),
    Wrong(running(replicas={"chief": {"count": 2}}), "chief.count", "at most 1"),
    Wrong(running(replicas={"evaluator": {"count": 2}}), "evaluator.count", "at most 1"),
    Wrong(running(replicas={"ps": {"count": 1000}}), "spec.replicas", "at most 1000"),
    Wrong({"mode": "between-graph"}, "spec.program", "a file, a folder, a URL or a cell"),
    Wrong({"mode": "in-graph", "program": CELL}, "spec.program", "the notebook is the client"),
    Wrong(
        {"mode": "in-graph", "replicas": {"chief": {"count": 1}}},
        "chief.count",
        "parameter servers and workers",
    ),
    Wrong(
        {"mode": "in-graph", "replicas": {"evaluator": {"count": 1}}},
        "evaluator.count",
        "parameter servers and workers",
    ),
    Wrong({"mode": "in-graph", "passFlags": "none"}, "spec.passFlags", "no program that"),
    Wrong(running(server="python"), "spec.server", "only in-graph"),
    Wrong(workers(memory="1Mi"), "worker.resources.memory", "64Mi"),
    Wrong(workers(memory="63999k"), "worker.resources.memory", "64Mi"),
    *(
        Wrong(
            running(replicas={kind: {"count": 1, "resources": {"memory": "1Mi"}}}),
            f"{kind}.resources.memory",
            "64Mi",
        )
        for kind in ("chief", "ps", "evaluator")
    ),
    Wrong(running(interpreter="python3"), "spec.interpreter", "full path"),
    Wrong(running(after=[{"run": "a-1"}, {"run": "a-1", "until": "end"}]), "after[1].run", "twice"),
    Wrong(running(after=[{"run": "prepare"}]), "after[0].run", "with its number"),
)
ENVIRONMENT = (
    *(
        Wrong(running(env={name: "x"}), f"spec.env.{name}", "choose another")
        for name in ("TF_CONFIG", "TFCLUSTER_ATTEMPT", "JUPYTERHUB_API_TOKEN", "LD_PRELOAD")
    ),
    Wrong(running(env={"A": "x\0"}), "spec.env.A", "NUL", kubectl="should match"),
    Wrong(running(env={"A\n": "x"}), "env", "letters"),
    # The API server replaces bytes that are not text by U+FFFD before it validates.
    Wrong(running(env={"A": "\udcff"}), "env.A", "UTF-8", kubectl=None),
    Wrong({"program": {**CELL, "arguments": ["a", "\udcff"]}}, "[1]", "UTF-8", kubectl=None),
    Wrong(
        {"program": {**CELL, "arguments": ["a\0b"]}}, "arguments[0]", "NUL", kubectl="should match"
    ),
)
FILES = (
    Wrong(
        {"program": {**CELL, "files": {"other.py": ""}}},
        "program.entrypoint",
        "not among the program's files",
    ),
    Wrong(
        {"program": {**CELL, "files": {"cell.py": "", **{f"{i}": "A" * 4096 for i in range(24)}}}},
        "program.files",
        TOGETHER,
    ),
)
PROGRAMS = (
    Wrong({"program": {"inline": "1", "path": "train.py"}}, "spec.program", "keep one of them"),
    Wrong({"program": {}}, "spec.program", "say what runs"),
    Wrong({"program": {"sha256": "0" * 64}}, "program.entrypoint", "that starts the program"),
    Wrong({"program": {"command": ["a"], "entrypoint": "a.py"}}, "spec.program", "neither"),
    Wrong({"program": {"command": ["a", "b\0"]}}, "command[1]", "NUL", kubectl="should match"),
    Wrong({"program": {"command": []}}, "program.command", ">= 1", kubectl="at least 1 items"),
    Wrong({"program": {"inline": ""}}, "program.inline", ">= 1", kubectl="at least 1 chars long"),
    Wrong({"program": {"url": "ftp://a/b.py"}}, "program.url", "https://example.com/train.py"),
    Wrong({"program": {"path": "a\nb.py"}}, "program.path", "without line breaks"),
)
PAYLOAD = (
    Wrong(
        {"env": {"A": "x" * 20_000}, "program": {"inline": "x" * 50_000}},
        "program.inline",
        TOGETHER,
    ),
    Wrong(
        {"program": {"command": ["python", "-c", *["x" * 10_000] * 7]}},
        "program.command",
        TOGETHER,
    ),
    Wrong(running(env={f"A{i}": "x" * 60_000 for i in range(15)}), "spec.env", TOGETHER),
    Wrong(
        {"env": {"A": "x" * 20_000}, "program": {**CELL, "arguments": ["x" * 10_000] * 5}},
        "program.arguments",
        TOGETHER,
    ),
    Wrong(
        {"program": {**CELL, "executables": [f"bin/{i:04000}" for i in range(20)]}},
        "program.executables",
        TOGETHER,
    ),
    Wrong(
        {"program": {**CELL, "flags": [f"{i:04000}" for i in range(20)]}},
        "program.flags",
        TOGETHER,
    ),
    Wrong(
        using(annotations={f"a{i}": "x" * 4000 for i in range(20)}), "pods.annotations", TOGETHER
    ),
)
PODS = (
    Wrong(mounting("/tfcluster/x"), "pods.volumes[0].path", "hide what tasks need"),
    *(Wrong(mounting(path), "volumes[0].path", "hide") for path in ("/log", "/etc", "/proc/1")),
    *(
        Wrong(mounting(path), "volumes[0].path", "without '.'")
        for path in ("/a/../log", "/a/", "//", "/mnt/./a")
    ),
    Wrong(mounting("/mnt/a", "/mnt/a"), "pods.volumes[1].path", "each path once"),
    Wrong(
        using(
            volumes=[{"claim": "a", "path": "/mnt/a"}], secrets=[{"name": "s3", "path": "/mnt/a"}]
        ),
        "secrets[0].path",
        "each path once",
    ),
    Wrong(
        using(volumes=[{"claim": "a", "path": "/mnt/a", "subPath": "b/../.."}]),
        "volumes[0].subPath",
        "without '.'",
    ),
    Wrong(using(secrets=[{"name": "s3"}, {"name": "s3"}]), "secrets[1].name", "twice"),
    Wrong(using(secrets=[{"name": "s3", "path": "/dev"}]), "secrets[0].path", "hide"),
    Wrong(using(secrets=[{"name": "s3", "path": "/a/"}]), "secrets[0].path", "without '.'"),
    Wrong(
        using(secrets=[{"name": "s3", "variables": {"TF_CONFIG": "a"}}]),
        "secrets[0].variables.TF_CONFIG",
        "TFCluster itself",
    ),
    Wrong(
        using(secrets=[{"name": "s3", "variables": {"A\n": "a"}}]),
        "secrets[0].variables",
        "and no digit first",
    ),
    Wrong(
        using(secrets=[{"name": "s3", "path": "/mnt/s3", "variables": {"A": "a"}}]),
        "secrets[0].variables",
        "to get both",
    ),
    Wrong(using(imagePullSecrets=["a", "a"]), "imagePullSecrets[1]", "twice"),
    Wrong(
        using(annotations={"tfcluster.dev/a": ""}),
        "annotations.tfcluster.dev/a",
        "TFCluster itself",
    ),
    Wrong(using(dataClaim={"size": "1k"}), "dataClaim.size", "at least 1Mi"),
)
SHAPES = (
    Wrong(
        {"mode": "ingraph"}, "spec.mode", "between-graph or in-graph", kubectl="supported values"
    ),
    Wrong(running(color=1), "spec.color", "no such field", kubectl="unknown field"),
    Wrong(
        running(replicas={"worker": {"count": -1}}),
        "worker.count",
        ">= 0",
        kubectl="greater than or equal to 0",
    ),
    Wrong(running(replicas={"worker": {}}), "worker.count", "required", kubectl="Required value"),
    Wrong(workers(cpu="many"), "worker.resources.cpu", "a number", kubectl="such as 2, 0.5 or"),
    Wrong(workers(cpu=0), "worker.resources.cpu", "> 0", kubectl="more than 0"),
    Wrong(workers(memory="3x"), "worker.resources.memory", "such as 512Mi or 2Gi"),
    Wrong(
        {"program": {**CELL, "sha256": "0"}}, "program.sha256", "[0-9a-f]{64}", kubectl="{64})?$"
    ),
    Wrong(
        running(lifecycle={"maxDuration": 0}),
        "lifecycle.maxDuration",
        "> 0",
        kubectl="greater than or equal to 1",
    ),
    Wrong(
        running(env={f"A{i}": "" for i in range(501)}), "spec.env", "<= 500", kubectl="at most 500"
    ),
    Wrong(
        using(volumes=[{"path": "/mnt/a"}]),
        "volumes[0].claim",
        "required",
        kubectl="Required value",
    ),
    Wrong(using(volumes=[{"claim": "A_b", "path": "/mnt/a"}]), "volumes[0].claim", "lower-case"),
    Wrong(mounting("mnt"), "pods.volumes[0].path", "full path"),
    Wrong(mounting("/mnt\n"), "pods.volumes[0].path", "full path"),
    Wrong(
        using(volumes=[{"claim": "a", "path": "/b", "subPath": "/"}]), "subPath", "without a '/'"
    ),
    Wrong(using(volumes="a:/b"), "pods.volumes", "a list", kubectl="of type array"),
    Wrong(using(volumes=["a:/b"]), "pods.volumes[0]", "an object", kubectl="of type object"),
    Wrong(using(imagePullSecrets=["a b"]), "pods.imagePullSecrets", "lower-case"),
    Wrong(
        using(secrets=[{"name": "s3", "variables": {"A": "a/b"}}]),
        "secrets[0].variables",
        "such as accesskey",
    ),
    Wrong(using(annotations={"a b": "c"}), "pods.annotations", "prometheus.io/scrape"),
    Wrong(using(dataClaim={"size": "much"}), "pods.dataClaim.size", "512Mi"),
    Wrong(
        using(secrets=[{"name": f"s{i}"} for i in range(21)]),
        "pods.secrets",
        "<= 20",
        kubectl="at most 20 items",
    ),
    *(
        Wrong(running(image=image), "spec.image", "without spaces or 'https://'")
        for image in ("https://a/b", "a b", "a:1\n", "")
    ),
)
WRONG = (*BETWEEN_FIELDS, *ENVIRONMENT, *FILES, *PROGRAMS, *PAYLOAD, *PODS, *SHAPES)
NAMES = (
    "digits",
    "digits-0",
    "digits-02",
    "digits-1234567",
    "digits-2-3",
    "a" * 41 + "-1",
    "a.b-1",
)
"""Names that Kubernetes allows but a TFCluster must not have."""
