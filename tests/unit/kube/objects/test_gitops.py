"""The health checks for Argo CD and Flux in k8s/gitops, on the recorded statuses of real runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace
from support.project import DATA, ROOT

from tfcluster_magic.backends.local.supervisor import RecordingHeader, replay
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import Mode, Phase, Reason, Spec, Status

GITOPS = ROOT / "k8s" / "gitops"
RECORDINGS = sorted((DATA / "replay").glob("*.jsonl"))
PROGRESSING = ("Progressing", "InProgress")
ENDED = {
    Phase.SUCCEEDED: ("Healthy", "Current"),
    Phase.FAILED: ("Degraded", "Failed"),
    Phase.STOPPED: ("Suspended", "Current"),
}
"""The health that Argo CD and Flux report for runs of these phases."""


def applied(spec: Spec, status: Status | None, generation: int = 1) -> dict[str, Any]:
    """Return a TFCluster as the API server stores it, with the relevant defaults."""
    made = custom_resource.write("digits", 1, spec)
    made["metadata"]["generation"] = generation
    made["spec"].setdefault("mode", "BetweenGraph")
    if status is not None:
        made["status"] = custom_resource.write_status(status, 1)
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def recorded() -> Iterator[tuple[Spec, Status]]:
    """Yield every status of the recorded runs, from `Queued` to the end, with the run's spec."""
    for recording in RECORDINGS:
        lines = recording.read_bytes().splitlines()
        header = msgspec.json.decode(lines[0], type=RecordingHeader)
        yield header.spec, header.status
        for step, _today in replay(lines):
            yield replace(header.spec, stop=step.stop), step.decision.status


def expected(spec: Spec, status: Status) -> tuple[str, str]:
    """Return the health that Argo CD and Flux should report for a run."""
    if status.phase is Phase.RUNNING and spec.mode is Mode.IN_GRAPH:
        return "Healthy", "Current"
    return ENDED.get(status.phase, PROGRESSING)


def argocd(found: dict[str, Any]) -> tuple[str, str]:
    """Run the ConfigMap's Lua script as Argo CD does; return the status and the message."""
    from lupa import lua51  # Argo CD uses Lua 5.1, without modules that access files

    data = yaml.safe_load((GITOPS / "argocd-cm.yaml").read_text())["data"]
    (script,) = data.values()
    assert list(data) == ["resource.customizations.health.tfcluster.dev_TFCluster"]
    lua = lua51.LuaRuntime()
    told = lua.execute(f"return function(obj)\n{script}\nend")(
        lua.table_from(found, recursive=True)
    )
    return str(told["status"]), str(told["message"])


def flux(found: dict[str, Any]) -> str:
    """Return the result of the Kustomization's CEL expressions, evaluated in Flux's order (RFC
    0009).
    """
    cel = pytest.importorskip("cel", reason="the interpreter of CEL needs Python 3.11")
    said = yaml.safe_load((GITOPS / "flux-kustomization.yaml").read_text())["spec"]
    (check,) = said["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == (found["apiVersion"], found["kind"])
    if found["status"]["observedGeneration"] != found["metadata"]["generation"]:
        return "InProgress"
    for name in ("inProgress", "failed", "current"):
        if name in check and cel.evaluate(check[name], found) is True:
            return name[:1].upper() + name[1:]
    return "InProgress"


def test_recorded_statuses_of_every_phase_are_told_by_both() -> None:
    """Argo CD and Flux report the expected health for each status of real runs, with a message."""
    seen, told = set(), set()
    for spec, status in recorded():
        found = applied(spec, status)
        seen.add(status.phase)
        message = json.dumps(found["status"].get("message", ""))
        if (key := (spec.mode, status.phase, status.reason, message)) in told:
            continue
        told.add(key)
        health, words = argocd(found)
        assert (health, flux(found)) == expected(spec, status), status.message
        assert json.dumps(words) == message
    assert seen == set(Phase)


@pytest.mark.parametrize("reason", list(Reason))
def test_a_failure_is_told_whatever_its_reason(reason: Reason) -> None:
    """A failed run is reported as degraded; a run that was stopped on request is not."""
    asked = reason in (Reason.STOP_REQUESTED, Reason.IDLE_TIMEOUT)
    phase = Phase.STOPPED if asked else Phase.FAILED
    found = applied(Spec(mode=Mode.IN_GRAPH), Status(phase=phase, reason=reason, message="why"))
    assert (argocd(found)[0], flux(found)) == ENDED[phase]


def test_nothing_is_said_of_what_the_operator_has_not_seen() -> None:
    """A run without a status, or with a stop that the operator has not seen, is reported as in
    progress.
    """
    spec = Spec(mode=Mode.IN_GRAPH)
    up = Status(phase=Phase.RUNNING, reason=Reason.RUNNING)
    assert argocd(applied(spec, None)) == ("Progressing", "Waiting for the operator")
    assert argocd(applied(spec, up, generation=2))[0] == "Progressing"
    assert flux(applied(spec, up, generation=2)) == "InProgress"
    assert argocd(applied(spec, up))[0] == "Healthy"
