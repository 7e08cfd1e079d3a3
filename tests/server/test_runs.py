"""The routes of runs, with valid and invalid requests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.polling import wait_until_async
from support.server.calls import Api, Events, Launch, assert_problem

from tfcluster_magic.errors import NotFound
from tfcluster_magic.i18n import language
from tfcluster_magic.output.run_card import MIME_TYPE
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.server.base import MOST_BYTES
from tfcluster_magic.server.service import Service


async def test_no_runs(api: Api) -> None:
    """Without runs, the list is empty, and has the current sequence number."""
    listed = await api("GET", "clusters")
    assert listed.status == 200
    assert listed.content_type == "application/json"
    assert listed.json["runs"] == []
    assert listed.json["problem"] is None
    assert {"at", "stream", "sequence"} < listed.json.keys()


async def test_a_list_is_light(api: Api, ended: Launch) -> None:
    """A run in a list has its record without files and addresses, and with only its newest
    event.
    """
    await ended("print('secret of the program')", workers=2)
    (run,) = (await api("GET", "clusters")).json["runs"]
    assert run["cluster"]["metadata"]["name"] == "digits-1"
    assert run["cluster"]["status"]["phase"] == "Succeeded"
    assert run["ready"] == {"ready": 2, "total": 2}
    assert "files" not in run["cluster"]["spec"]["program"]
    assert "addresses" not in run["cluster"]["status"]
    assert len(run["cluster"]["status"]["events"]) == 1
    assert (run["progress"], run["notes"]) == (None, [])


async def test_what_notebooks_keep_of_runs(api: Api, ended: Launch, page: Any) -> None:
    """Notebooks get text, HTML and JSON of the current state of runs; unknown runs are left out."""
    events: Events = await page()
    await ended("print('hello')")
    await events.phase("Succeeded")
    kept = (await api("GET", "outputs?run=digits-1")).json["outputs"]
    assert kept.keys() == {"digits-1"}
    assert "digits-1 Succeeded" in kept["digits-1"]["text/plain"]
    assert "Succeeded" in kept["digits-1"]["text/html"]
    drawn = kept["digits-1"][MIME_TYPE]
    assert (drawn["kind"], drawn["cluster"]["status"]["phase"]) == ("Run", "Succeeded")
    assert (await api("GET", "outputs?run=gone-7")).json == {"outputs": {}}
    assert (await api("GET", "outputs")).json == {"outputs": {}}


async def test_earlier_runs_are_listed_when_asked_for(api: Api, ended: Launch) -> None:
    """A list has the newest run of each name; with `all=1` it has every run, newest first."""
    await ended()
    await ended()

    async def names(path: str) -> list[str]:
        listed = await api("GET", path)
        return [run["cluster"]["metadata"]["name"] for run in listed.json["runs"]]

    assert await names("clusters") == ["digits-2"]
    assert await names("clusters?all=0") == ["digits-2"]
    assert await names("clusters?all=1") == ["digits-2", "digits-1"]
    assert_problem(await api("GET", "clusters?all=yes"), 422, "all", "0, 1")


async def test_one_run_is_told_whole(
    api: Api, ended: Launch, service: Service, tmp_path: Path
) -> None:
    """A single run has all its events, its tasks' names, and the command that launches it again."""
    await ended("print('hello')", workers=2, ps=1, reclaim_after="0s")
    run = (await api("GET", "clusters/digits")).json
    assert len(run["cluster"]["status"]["events"]) > 1
    assert run["cluster"]["status"]["addresses"]
    assert "files" not in run["cluster"]["spec"]["program"]
    assert run["tasks"] == ["worker-0", "worker-1", "ps-0"]
    assert run["line"].startswith("%%tfcluster launch")
    assert run["line"].endswith("print('hello')")
    assert run["command"] is None, "a shell has no cells"
    again = tmp_path / "again.yaml"
    again.write_text(run["yaml"])
    planned = service.manager.plan(file=str(again)).cluster
    first = service.manager.status("digits")
    assert planned.metadata.cluster == "digits"
    assert planned.spec == first.spec


async def test_tasks_of_a_run(api: Api, ended: Launch) -> None:
    """One request returns all tasks of a run, each with its state, its place and its last line."""
    await ended("import os; print('by', os.environ['TFCLUSTER_TASK'])", workers=2)
    run = (await api("GET", "clusters/digits")).json
    told = (await api("GET", "tasks?run=digits-1")).json["runs"]["digits-1"]
    assert (await api("GET", "tasks?run=gone-7")).json == {"runs": {}}
    assert told["uid"] == run["cluster"]["metadata"]["uid"]
    assert [(row["name"], row["state"], row["line"]) for row in told["tasks"]] == [
        ("worker-0", "Succeeded", "by worker-0"),
        ("worker-1", "Succeeded", "by worker-1"),
    ]
    assert all(row["node"] and row["since"] and row["printedAt"] for row in told["tasks"])


async def test_a_run_that_is_not_there(api: Api, ended: Launch) -> None:
    """Every route refuses an unknown run with 404, with the message of the command line."""
    await ended()
    routes = (("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("GET", "/logs"))
    for ref in ("digit", "digits-7", "..", "a%2Fb", "%00", "ü", "x" * 5000):
        for method, path in routes:
            assert_problem(await api(method, f"clusters/{ref}{path}"), 404, "there is no run")


async def test_stop(api: Api, launch: Launch, service: Service) -> None:
    """A request to stop is answered at once; the record has the reason."""
    await launch()
    run = (await api("POST", "clusters/digits/stop", {"reason": "enough"})).json
    assert run["cluster"]["spec"]["stop"]["reason"] == "enough"
    over = await asyncio.to_thread(service.manager.wait, "digits", until=Until.RELEASED)
    assert over.status.phase.value == "Stopped"
    assert "enough" in over.status.message
    again = await api("POST", "clusters/digits-1/stop")
    assert again.status == 200
    assert again.json["cluster"]["status"]["phase"] == "Stopped"


async def test_note(api: Api, ended: Launch, page: Any) -> None:
    """A note is set and removed, and every page receives it; an invalid note is refused."""
    await ended()
    events: Events = await page()
    run = (await api("POST", "clusters/digits/note", {"text": "rate 0.1"})).json
    assert run["cluster"]["metadata"]["note"] == "rate 0.1"
    told = await events.until(lambda event: "note" in event["run"]["cluster"]["metadata"])
    assert told["name"] == "digits-1"
    assert_problem(await api("POST", "clusters/digits/note", {}), 422, "text", "required")
    too_long = {"text": "x" * 501}
    assert_problem(await api("POST", "clusters/digits/note", too_long), 422, "text", "500")
    other = await api("POST", "clusters/digits/note?uid=another", {"text": "x"})
    assert_problem(other, 409, "another run")
    run = (await api("POST", "clusters/digits/note", {"text": ""})).json
    assert "note" not in run["cluster"]["metadata"]


async def test_tags_and_display_name(api: Api, ended: Launch, page: Any) -> None:
    """A page tags and renames a run; every page receives it, and a wrong tag changes nothing."""
    await ended()
    events: Events = await page()
    added = {"add": ["baseline", "lr-search"]}
    run = (await api("POST", "clusters/digits/tag", added)).json
    assert run["cluster"]["metadata"]["tags"] == ["baseline", "lr-search"]
    told = await events.until(lambda event: "tags" in event["run"]["cluster"]["metadata"])
    assert told["name"] == "digits-1"
    changed = {"add": ["final"], "remove": ["baseline"]}
    run = (await api("POST", "clusters/digits/tag", changed)).json
    assert run["cluster"]["metadata"]["tags"] == ["lr-search", "final"]
    wrong = await api("POST", "clusters/digits/tag", {"add": ["<img src=x>"]})
    assert_problem(wrong, 422, "add", "letters, digits")
    assert_problem(await api("POST", "clusters/digits/tag", {"add": ["x"] * 17}), 422, "add", "16")

    run = (await api("POST", "clusters/digits/rename", {"text": "First try"})).json
    assert run["cluster"]["metadata"]["displayName"] == "First try"
    assert run["cluster"]["metadata"]["name"] == "digits-1"
    assert_problem(await api("POST", "clusters/digits/rename", {"text": "x" * 101}), 422, "100")
    other = await api("POST", "clusters/digits/rename?uid=another", {"text": "x"})
    assert_problem(other, 409, "another run")
    run = (await api("POST", "clusters/digits/rename", {"text": ""})).json
    assert "displayName" not in run["cluster"]["metadata"]


async def test_comparison(api: Api, launch: Launch) -> None:
    """Two runs are compared with their differences; a single or deleted run is refused."""
    await launch()
    await launch(name="other", arguments=["--rate", "0.1"])
    told = (await api("GET", "comparison?run=digits&run=other-1")).json
    assert [run["name"] for run in told["runs"]] == ["digits-1", "other-1"]
    rows = {row["label"]: row for row in told["rows"]}
    rate, program = rows["--rate"], rows["Program"]
    assert (rate["group"], rate["values"], rate["differs"]) == ("arguments", ["", "0.1"], True)
    assert not program["differs"]
    for query in ("", "?run=digits", "?run=digits&run=digits-1"):
        assert_problem(await api("GET", f"comparison{query}"), 422, "run", "2 to 50")
    assert_problem(await api("GET", "comparison?run=digits&run=none"), 404, "there is no run")


WRONG: list[tuple[bytes, int, list[str]]] = [
    (b"{", 400, ["not JSON"]),
    (b"\xff\xfe", 400, ["not JSON"]),
    (b'{"reason": NaN}', 400, ["not JSON"]),
    (b"[" * 100_000, 400, ["not JSON"]),
    (b"[]", 400, ["not a JSON object"]),
    (b'"stop"', 400, ["not a JSON object"]),
    (b'{"reason": 5}', 422, ["reason", "use text"]),
    (b'{"reason": null}', 422, ["reason", "use text"]),
    (json.dumps({"reason": "x" * 1001}).encode(), 422, ["reason", "1000"]),
    (b'{"why": "x"}', 422, ["why", "no such field", "Allowed: reason"]),
    (b'{"resaon": 1, "by": 2}', 422, ["2 reasons", "did you mean 'reason'"]),
    (b'{"reason": "' + b"x" * MOST_BYTES + b'"}', 413, ["at most 4 MiB"]),
]


async def test_tasks_of_too_many_runs_are_refused(api: Api) -> None:
    """One request lists the tasks of at most 50 runs, because each run needs a call of the
    backend.
    """
    names = [f"run=nothing-{number}" for number in range(51)]
    assert (await api("GET", f"tasks?{'&'.join(names[1:])}")).json == {"runs": {}}
    assert (await api("GET", f"tasks?{'&'.join(names[1:] * 2)}")).json == {"runs": {}}
    refused = await api("GET", f"tasks?{'&'.join(names)}")
    assert_problem(refused, 422, "run", "51", "name at most 50 runs")


async def test_a_body_that_is_wrong(api: Api, ended: Launch) -> None:
    """A body that is not a JSON object, or has unknown fields or wrong types, is refused and
    changes nothing; the refusal says what is allowed.
    """
    run = await ended()
    for sent, status, words in WRONG:
        answer = await api("POST", "clusters/digits/stop", raw=sent)
        assert_problem(answer, status, *words)
        if status == 422:
            assert all(p["field"] and p["allowed"] for p in answer.json["problems"]), sent
        told = (await api("GET", "clusters/digits")).json["cluster"]
        assert told["status"]["phase"] == run.status.phase.value, sent[:80]
        assert "stop" not in told["spec"], sent[:80]


async def test_delete(api: Api, ended: Launch) -> None:
    """A deleted run is gone; its output stays unless its removal is requested."""
    run = await ended()
    output = Path(run.status.paths["output"])
    assert (await api("DELETE", "clusters/digits-1")).status == 204
    assert_problem(await api("GET", "clusters/digits-1"), 404)
    assert output.is_dir()
    second = await ended()
    assert (await api("DELETE", "clusters/digits-2?logs=1")).status == 204
    assert not Path(second.status.paths["output"]).exists()


async def test_deleting_a_run_that_runs_stops_it_first(api: Api, launch: Launch) -> None:
    """Deleting an active run stops it first."""
    await launch()
    assert (await api("DELETE", "clusters/digits")).status in (202, 204)

    async def gone() -> bool:
        return not (await api("GET", "clusters")).json["runs"]

    await wait_until_async(gone)


STUBBORN = """
import os, signal, time
signal.signal(15, lambda *_: None)
print('up', flush=True)
while not os.path.exists({end!r}):
    time.sleep(0.02)
"""


async def test_deleting_what_takes_long_to_end_is_answered_soon(
    api: Api, launch: Launch, page: Any, service: Service, tmp_path: Path
) -> None:
    """If a deletion takes longer than a proxy waits, because the tasks end slowly, the response
    says that they are ending. Later, an event says that the run is gone, even if the request was
    repeated.
    """
    events: Events = await page()
    end = tmp_path / "end"
    await launch(STUBBORN.format(end=str(end)), grace="10m")
    await events.phase("Running")
    lines = service.manager.logs("digits", follow=True)
    await asyncio.to_thread(lambda: next(line for line in lines if line is not None))
    for _ in range(2):
        answer = await api("DELETE", "clusters/digits")
        assert answer.status == 202
        assert answer.json["cluster"]["spec"]["stop"]["reason"] == "it is being deleted"
    end.touch()
    gone = await events.until(lambda e: e["type"] == "removed")
    assert gone["name"] == "digits-1"
    assert_problem(await api("GET", "clusters/digits"), 404)
    first = next(i for i, e in enumerate(events.seen) if "stop" in _cluster(e).get("spec", {}))
    after = [_cluster(e) for e in events.seen[first:-1]]
    assert all("stop" in cluster["spec"] for cluster in after), "a stop is not taken back"


REPLACES_ITS_OUTPUT = """
import os, signal, time
signal.signal(15, lambda *_: None)
print('up', flush=True)
while not os.path.exists({end!r}):
    time.sleep(0.02)
output = os.environ['TFCLUSTER_OUTPUT_DIR']
os.rename(output, {end!r} + '-moved')
open(output, 'w').close()
"""


async def test_a_deletion_that_fails_after_its_answer_is_told_to_the_pages(
    api: Api, launch: Launch, page: Any, service: Service, tmp_path: Path
) -> None:
    """If a deletion fails after its response was sent, an event and the run itself give the reason,
    until the run is deleted again.
    """
    events: Events = await page()
    end = tmp_path / "end"
    await launch(REPLACES_ITS_OUTPUT.format(end=str(end)), grace="10m")
    running = await events.phase("Running")
    output = Path(running["run"]["cluster"]["status"]["paths"]["output"])
    lines = service.manager.logs("digits", follow=True)
    await asyncio.to_thread(lambda: next(line for line in lines if line is not None))
    assert (await api("DELETE", "clusters/digits?logs=1")).status == 202
    end.touch()
    told = await events.until(lambda e: e["type"] == "failed")
    assert (told["name"], told["problem"]["status"]) == ("digits-1", 409)
    why = f"{output} could not be removed"
    assert told["problem"]["detail"].startswith(f"digits-1 was not deleted: {why}")
    (note,) = told["run"]["notes"]
    assert note.startswith(f"It was not deleted: {why}")

    (listed,) = (await api("GET", "clusters")).json["runs"]
    assert listed["notes"] == [note]
    assert_problem(await api("DELETE", "clusters/digits?logs=1"), 409, why)
    output.unlink()
    assert (await api("DELETE", "clusters/digits?logs=1")).status == 204
    assert (await api("GET", "clusters")).json["runs"] == []
    assert [e["type"] for e in events.seen].count("failed") == 1, "who asks is answered"


def _cluster(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (event["run"] or {"cluster": {}})["cluster"]
    return found


async def test_a_name_that_is_another_run_by_now(
    api: Api, launch: Launch, ended: Launch, own_folders: Path
) -> None:
    """A request with the uid of a run does not affect another run that has the same name now, as
    can happen after the file that remembers numbers was removed.
    """
    first = (await ended()).metadata.uid
    assert (await api("POST", f"clusters/digits/stop?uid={first}")).status == 200
    assert (await api("DELETE", f"clusters/digits-1?uid={first}&logs=1")).status == 204
    (own_folders / "state" / "hours.json").unlink()
    second = await launch()
    assert second.metadata.name == "digits-1"
    for method, path in (("POST", "/stop"), ("DELETE", "")):
        answer = await api(method, f"clusters/digits-1{path}?uid={first}")
        assert_problem(answer, 409, "digits-1 is another run now")
    told = (await api("GET", "clusters/digits-1")).json["cluster"]
    assert "stop" not in told["spec"]
    stopped = await api("POST", f"clusters/digits-1/stop?uid={second.metadata.uid}")
    assert stopped.status == 200


async def test_a_method_that_a_route_does_not_have(api: Api) -> None:
    """An unsupported method is refused with a problem response."""
    for method, path in (("PUT", "clusters"), ("PATCH", "clusters/a"), ("DELETE", "options")):
        assert_problem(await api(method, path), 405)


async def test_errors_are_told_in_the_persons_language(api: Api, service: Service) -> None:
    """A refusal is in the browser's language."""
    with language("zh-CN"), pytest.raises(NotFound) as refused:
        service.manager.status("digits")
    answer = await api("GET", "clusters/digits", headers={"Accept-Language": "zh-CN,en;q=0.5"})
    assert answer.json["detail"] == str(refused.value)
    english = await api("GET", "clusters/digits", headers={"Accept-Language": "en"})
    assert english.json["detail"].startswith("there is no run digits")


async def test_an_error_inside_is_no_traceback(
    api: Api, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to an internal error says only that there was one; the server's log has the
    cause.
    """

    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("the secret cause")

    with monkeypatch.context() as patched:
        patched.setattr(service.manager, "list", fails)
        answer = await api("GET", "clusters")
    assert_problem(answer, 500, "log for the cause")
    assert "secret" not in answer.text


async def test_looking_is_no_activity(api: Api, ended: Launch, jp_serverapp: Any) -> None:
    """Automatic requests of a page do not count as activity; a user's requests do."""
    await ended()
    settings = jp_serverapp.web_app.settings
    settings.pop("api_last_activity", None)
    await api("GET", "clusters")
    assert "api_last_activity" not in settings
    await api("POST", "clusters/digits/stop")
    assert "api_last_activity" in settings


async def test_what_can_be_asked_for(api: Api) -> None:
    """The options include the free resources and the fields of a form."""
    offered = (await api("GET", "options")).json
    assert offered["options"]["backend"] == "local"
    assert 0 < offered["options"]["memory"]["free"] <= offered["options"]["memory"]["total"]
    assert {"form", "kernelspecs", "defaults"} < offered.keys()


async def test_usage(api: Api, ended: Launch) -> None:
    """A response lists the usage of each task next to the CPU and memory that the task requested,
    with samples for the tasks that the query names. For an unknown task, the error names the
    existing tasks.
    """
    # long enough for two samples
    program = "import time\nend = time.time() + 5\nwhile time.time() < end: pass"
    await ended(program, workers=1, worker_cpu=2)
    told = (await api("GET", "clusters/digits/usage?task=worker-0")).json
    (task,) = told["usage"]["tasks"]
    assert (task["name"], task["cpuRequested"], task["current"]) == ("worker-0", 2.0, None)
    assert task["cpuSeconds"] >= 0.45
    assert told["series"].keys() == {"worker-0"}
    columns = told["series"]["worker-0"]
    assert {len(column) for column in columns.values()} == {len(columns["at"])}
    assert (await api("GET", "clusters/digits/usage")).json["series"] == {}
    asked = "clusters/digits/usage?task=worker-0&only=1&points=1&graphs=4&figure=at"
    short = (await api("GET", asked)).json
    assert [task["name"] for task in short["usage"]["tasks"]] == ["worker-0"]
    assert short["series"]["worker-0"].keys() == {"at"}
    assert len(short["series"]["worker-0"]["at"]) <= 2
    (workers,) = short["graphs"]["types"]
    assert workers["usage"]["taskType"] == "worker" and len(short["graphs"]["at"]) <= 4
    assert max(each or 0 for each in workers["graphs"][0]["high"]) > 0.05
    drawn = (await api("GET", "clusters/digits/usage?only=1&graphs=4")).json
    assert (drawn["usage"]["tasks"], drawn["graphs"]["types"]) == ([], [workers])
    wrong = await api("GET", "clusters/digits/usage?graphs=9999999")
    assert_problem(wrong, 422, "graphs", "1 to 1000")
    refused = await api("GET", "clusters/digits/usage?task=ps-0")
    assert_problem(refused, 404, "ps-0", "it has worker-0")
    assert_problem(await api("GET", "clusters/none/usage"), 404, "there is no run")


async def test_usage_has_advice_in_the_language_of_the_request(
    api: Api, ended: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece of advice has its code, its task, a sentence, the options that it changes, and the
    command. A rerun with `advised` applies the advice.
    """
    monkeypatch.setenv("TFCLUSTER_IDLE_SAMPLE", "0.2")
    await ended("import time; time.sleep(1)", workers=1, worker_memory="2Gi")
    (told,) = (await api("GET", "clusters/digits/usage")).json["usage"]["advice"]
    assert (told["code"], told["task"]) == ("AdviceMemoryTooHigh", "worker")
    assert told["message"].startswith("worker needs less memory: 2GiB requested for each task")
    assert told["options"] == {"worker_memory": "512Mi"}
    assert told["command"] == "tfcluster rerun digits-1 --worker-memory 512Mi"
    chinese = await api("GET", "clusters/digits/usage", headers={"Accept-Language": "zh-CN"})
    assert "不需要这么多内存" in chinese.json["usage"]["advice"][0]["message"]
    run = await api("POST", "clusters/digits/rerun", {"advised": True})
    assert run.json["cluster"]["spec"]["replicas"]["worker"]["resources"]["memory"] == "512Mi"
    await api("POST", "clusters/digits/stop")
