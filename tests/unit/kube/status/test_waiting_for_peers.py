"""Tasks that wait for other tasks, and the messages that running tasks print about their wait."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.waiting_pods import LATER, recorded, told

from tfcluster_magic.kube.status import waiting_reasons
from tfcluster_magic.lifecycle.messages import sentences


def ps_and_worker(*, started: bool) -> dict[str, Any]:
    """Return recorded pods of a running worker and of a parameter server, which runs if
    `started`.
    """
    seen = recorded("running")
    worker, job = seen["pods"][0], seen["jobs"][0]

    def as_server(found: dict[str, Any]) -> dict[str, Any]:
        twin: dict[str, Any] = json.loads(json.dumps(found))
        twin["metadata"]["labels"]["tfcluster.dev/task-type"] = "ps"
        twin["metadata"]["uid"] += "-ps"
        twin["metadata"]["name"] = twin["metadata"]["name"].replace("worker", "ps")
        return twin

    server = as_server(worker)
    server["status"]["containerStatuses"][0]["started"] = started
    return {**seen, "pods": [worker, server], "jobs": [job, as_server(job)]}


def test_a_worker_waits_for_its_parameter_server() -> None:
    """The message of workers that run before a parameter server is up names that server."""
    assert [sentences([each.sentence]) for each in told(ps_and_worker(started=False))] == [
        "worker-0 waits for ps-0."
    ]
    assert told(ps_and_worker(started=True)) == []


LINES = {
    "waiting for the address of digits-1-worker-0.digits-1": "the name of worker-0 does not "
    "resolve though it runs: the cluster's DNS does not answer; ask the administrator",
    "waiting for the address of digits-1-chief-0.digits-1 and 3 more": "it waits for the address "
    "of chief-0",
    "I tensorflow/x.cc] CreateSession still waiting for response from worker: "
    "/job:worker/replica:0/task:1": "its TensorFlow gets no answer from worker-1",
    "hello": "it runs and has not opened its port yet: importing TensorFlow takes a while",
}


@pytest.mark.parametrize(
    "after",
    ["every address is there", "going on without the address of digits-1-worker-0.digits-1: it"],
)
def test_an_address_that_came_is_not_waited_for(after: str) -> None:
    """A task that waited for an address, and has begun to import TensorFlow since then, does not
    blame DNS.
    """
    seen = ps_and_worker(started=False)
    (asked,) = waiting_reasons.open_questions(seen["pods"], seen["jobs"], LATER)
    waits = "waiting for the address of digits-1-worker-0.digits-1"
    lines = waiting_reasons.WaitingFacts(lines={asked.uid: ["begun", waits, after]})
    found = waiting_reasons.explain_waiting(seen["pods"], seen["jobs"], {}, lines)
    assert [str(each.text) for each in found if each.tasks == ("ps-0",)] == [LINES["hello"]]


@pytest.mark.parametrize("line", LINES)
def test_a_task_that_runs_says_whom_it_waits_for(line: str) -> None:
    """The message about a task with a closed port comes from the task's output, and names the
    missing peer or the failed name lookup.
    """
    seen = ps_and_worker(started=False)
    asked = waiting_reasons.open_questions(seen["pods"], seen["jobs"], LATER)
    assert [(each.kind, each.name[:11]) for each in asked] == [("log", "digits-1-ps")]
    lines = waiting_reasons.WaitingFacts(lines={asked[0].uid: ["begun", line]})
    found = waiting_reasons.explain_waiting(seen["pods"], seen["jobs"], {}, lines)
    assert [str(each.text) for each in found if each.tasks == ("ps-0",)] == [LINES[line]]
