"""The size of a record in etcd: how many bytes a text counts, and the maximum size of a record."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.payloads import SPECS, TEXT, filled, size

from tfcluster_magic.errors import InvalidRequest, Problem, with_few_problems
from tfcluster_magic.kube.api import decoding
from tfcluster_magic.kube.objects import crd, custom_resource
from tfcluster_magic.launch.validation import validate
from tfcluster_magic.lifecycle.messages import english
from tfcluster_magic.operator.reconcile.status_rules import failed_status
from tfcluster_magic.spec import (
    DISPLAY_NAME_LENGTH,
    MOST_TAGS,
    NOTE_LENGTH,
    TAG_LENGTH,
    Annotations,
    Cause,
    Event,
    Message,
    Phase,
    Reason,
    Spec,
    Status,
    TaskExit,
    TaskFailure,
    TaskState,
    TaskStatus,
    TypeCounts,
    resource_form,
)
from tfcluster_magic.spec import record_size as sizes
from tfcluster_magic.spec.spec import PAYLOAD_BYTES
from tfcluster_magic.spec.status import FoundCheckpoint, Reclaimed, Usage


def as_in_go(content: object) -> str:
    """Return JSON as Kubernetes writes it.

    Ref: https://pkg.go.dev/encoding/json#Marshal
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_texts_count_as_kubernetes_stores_them(text: str) -> None:
    """A text counts as many bytes as its JSON takes in etcd, never fewer. Only a line or paragraph
    separator (U+2028, U+2029) counts one byte more than it takes.
    """
    stored = len(as_in_go(text).encode()) - 2
    assert sizes.stored_bytes(text) == stored + text.count("\u2028") + text.count("\u2029")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_policy_counts_the_same(text: str) -> None:
    """The expression in the admission policy counts as many bytes for a text as `stored_bytes`
    does.
    """
    escaped, long = re.findall(r"findAll\(r'(.*?)'\)", sizes.stored_bytes_in_cel("t"))
    more = (
        len(re.findall(re.sub(r"\\x\{(....)\}", r"\\u\1", each), text)) for each in (escaped, long)
    )
    one, four = more
    assert len(text.encode()) + one + 4 * four == sizes.stored_bytes(text)


def test_every_field_of_the_table_has_a_case() -> None:
    """Every field of PAYLOAD has a spec in SPECS, which is tested here and on Kubernetes."""
    assert set(SPECS) == {each.path for each in sizes.PAYLOAD}


@pytest.mark.parametrize("path", SPECS)
def test_the_border_is_at_the_same_byte_for_each_field(path: str) -> None:
    """Whatever field a text is in, 64 KiB are accepted, and one byte more is refused."""
    assert counted(path) > 0
    spec = filled(SPECS[path])
    assert size(spec) == PAYLOAD_BYTES
    validate(spec)
    with pytest.raises(InvalidRequest, match="64 KiB together"):
        validate(filled(SPECS[path], bytes_left=-1))


@pytest.mark.parametrize("path", SPECS)
def test_what_is_counted_is_what_is_stored(path: str) -> None:
    """The stored JSON of a field has as many bytes as are counted for it, plus the names of the
    fields in it and the overhead of base64.
    """
    spec = resource_form.write(Spec, SPECS[path])
    for name in path.split("."):
        spec = spec[name]
    stored = len(as_in_go(spec).encode())
    files = sum(map(len, spec.values())) if path == "program.files" else 0
    expected = counted(path) + files // 4
    beside = 14 * as_in_go(spec).count('":') if path.startswith("pods") else 0
    assert expected - 3 <= stored <= expected + beside + 4


def counted(path: str) -> int:
    """Return the number of bytes that are counted for the field `path` of its spec in SPECS."""
    return sizes.payload_sizes(msgspec.convert(SPECS[path], Spec))[path]


def test_a_cached_record_keeps_no_text_of_any_length() -> None:
    """The operator's caches keep no text of unlimited length."""
    for path in SPECS:
        spec = resource_form.write(Spec, filled(SPECS[path]))
        kept = decoding.trim_tfcluster({"metadata": {}, "spec": spec})
        assert len(json.dumps(kept)) < 1000, path


# -- the largest record ----------------------------------------------------------------------------


def most_bytes(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> int:
    """Return the maximum number of bytes that a value of the JSON Schema `node` takes, without the
    texts that PAYLOAD counts. If a text has a pattern, the pattern allows only characters of one
    byte.
    """
    if any(path == each.path for each in sizes.PAYLOAD):
        return 4  # only the brackets and a separator, because PAYLOAD counts the content
    if "$ref" in node:
        return most_bytes(definitions[node["$ref"].rsplit("/")[-1]], definitions, path)
    if "anyOf" in node:
        return max(most_bytes(each, definitions, path) for each in node["anyOf"])
    if "properties" in node:
        below = node["properties"].items()
        return 2 + sum(
            len(name) + 8 + most_bytes(each, definitions, f"{path}.{name}".lstrip("."))
            for name, each in below
        )
    if node.get("type") == "array":
        return 2 + node["maxItems"] * (1 + most_bytes(node["items"], definitions, path))
    if "enum" in node:
        return 2 + max(map(len, node["enum"]))
    if node.get("type") == "string":
        if node.get("pattern") == "^([0-9a-f]{64})?$":
            return 66
        return 2 + node["maxLength"] * (1 if "pattern" in node else 6)
    assert node.get("type") in ("integer", "number", "boolean", "null"), (path, node)
    return 30


def test_all_other_fields_of_a_spec_are_bounded() -> None:
    """Every field outside PAYLOAD has its own maximum size, and together these fields take at most
    OTHER_BYTES. PAYLOAD counts the texts of claims and secrets; the names of their fields count
    here.
    """
    whole = sizes_schema()
    beside = 20 * len('{"claimName":,"path":,"readOnly":false,"subPath":},')
    beside += 20 * len('{"name":,"path":,"variables":{}},') + 10 * len('{"name":},')
    metadata = 2000  # name, namespace, uid, times, and their field names
    spec = most_bytes(whole["$defs"]["Spec"], whole["$defs"], "")
    assert spec + beside + metadata <= sizes.OTHER_BYTES


def sizes_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of the models."""
    from tfcluster_magic.spec import schema

    return schema()


def test_who_wrote_a_record_takes_what_the_policy_counts() -> None:
    """For each client that wrote to a record, Kubernetes adds an entry to managedFields. The entry
    is not larger than the size that the admission policy counts for it.
    """
    spec = crd.object_schema()["properties"]["spec"]
    entry = {
        "manager": "",
        "operation": "Update",
        "apiVersion": "tfcluster.dev/v1beta1",
        "time": "2026-11-26T18:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {}, "f:annotations": {}}, "f:spec": owned(spec)},
    }
    assert len(json.dumps(entry, separators=(",", ":"))) <= 1400
    entry["fieldsV1"] = {"f:status": {}, "f:spec": {"f:stop": owned(spec["properties"]["stop"])}}
    assert len(json.dumps(entry, separators=(",", ":"))) <= 400


def owned(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of managedFields for a client that wrote every field of a schema."""
    if node.get("x-kubernetes-map-type") == "atomic" or "properties" not in node:
        assert node.get("type") != "object" or "x-kubernetes-map-type" in node, node
        return {}
    return {"f:" + name: owned(each) for name, each in node["properties"].items()}


# -- the largest status ----------------------------------------------------------------------------

LONG = "<" * 4000


def failed(task: str, text: str = LONG) -> TaskFailure:
    """Return a failure whose texts all have the greatest length that Kubernetes keeps."""
    told = TaskExit(
        cause=Cause.ERROR,
        finished_at=1.5e9,
        exit_code=1,
        last_lines=(text,) * 20,
        error=text,
        file=text,
        line=10,
        origin=text,
        detail=text,
        detail_message=Message(code="Refused", params={"why": text}),
        uncopied=text,
        wrote=(text,),
        lost=(text,),
        found=FoundCheckpoint(checkpoint=text, folder=text),
    )
    return TaskFailure(task=task, attempt=1, exit=told)


def largest() -> Status:
    """Return a status in which every field is as large as the operator ever writes it."""
    said = Message(code="Refused", params={"why": LONG})
    days = {
        f"2026-{month:02}-{day:02}": dict.fromkeys(TYPES, 1e8)
        for month in (1, 2)
        for day in range(1, 31)
    }
    return Status(
        phase=Phase.FAILED,
        reason=Reason.PROGRAM_FAILED,
        message=LONG,
        messages=(said,) * 5,
        **dict.fromkeys(
            ("queued_at", "started_at", "running_at", "finished_at", "released_at", "stop_at"),
            1.5e9,
        ),
        restarts={f"worker-{number}": 100 for number in range(999)},
        failures=tuple(failed(f"worker-{number}") for number in range(20)),
        culprit="worker-0",
        evaluator=failed("evaluator-0"),
        counts=dict.fromkeys(TYPES, TypeCounts(1000, 1000, 1000, 1000, 1000, 1000)),
        attention=tuple(
            TaskStatus(
                name=f"worker-{n}", state=TaskState.FAILED, message=LONG, exit=failed("").exit
            )
            for n in range(20)
        ),
        events=tuple(
            Event(at=1.5e9, reason="Failed", message=LONG, messages=(said,)) for _ in range(50)
        ),
        reclaimed=Reclaimed(at=1.5e9, tasks=tuple(f"ps-{number}" for number in range(999))),
        usage=Usage(
            at=1.5e9, days=days, holding=dict.fromkeys(TYPES, 999), cores=dict.fromkeys(TYPES, 1.5)
        ),
        paths={"output": f"/log/{'d' * 100}/1", "logs": f"/log/{'d' * 100}/1"},
        warnings=(LONG,) * 20,
        inferred=(said,) * 20,
    )


TYPES = ("chief", "worker", "ps", "evaluator")


def test_a_status_never_takes_more_than_is_said() -> None:
    """A status stays within its limit and keeps the facts that decisions need, no matter how much
    programs print and how often tasks fail.
    """
    status = largest()
    written = custom_resource.write_status(status, 7)
    assert len(as_in_go(written).encode()) <= sizes.STATUS_BYTES
    kept = custom_resource.read_status({"status": written})
    for same in (
        "phase",
        "reason",
        "restarts",
        "usage",
        "counts",
        "paths",
        "culprit",
        "finished_at",
    ):
        assert getattr(kept, same) == getattr(status, same)
    assert [each.task for each in kept.failures] == ["worker-0"]
    assert kept.failures[0].exit.cause is Cause.ERROR


def crashed(task: str, line: str) -> TaskFailure:
    """Return a failure with twenty times `line` as output, and an error as long as two lines."""
    told = TaskExit(cause=Cause.ERROR, finished_at=1.5e9, last_lines=(line,) * 20, error=line * 2)
    return TaskFailure(task=task, attempt=1, exit=told)


@pytest.mark.parametrize(
    ("length", "first", "last", "events", "words"),
    [
        (20, 20, 20, 50, 40),
        (100, 20, 0, 50, 200),
        (400, 20, 0, 10, 800),
        (600, 20, 0, 10, 80),
    ],
)
def test_of_a_status_that_is_too_large_goes_first_what_people_need_least(
    length: int, first: int, last: int, events: int, words: int
) -> None:
    """From a status that is too large, texts are dropped in this order: the last lines of tasks
    that failed later, older events, the messages of tasks that failed later, and finally the output
    of the task that failed first.
    """
    status = Status(
        phase=Phase.FAILED,
        reason=Reason.PROGRAM_FAILED,
        failures=tuple(crashed(f"worker-{n}", "x" * length) for n in range(20)),
        events=tuple(Event(at=1.5e9, reason="Failed", message="x" * 60) for _ in range(50)),
    )
    kept = custom_resource.read_status({"status": custom_resource.write_status(status)})
    assert len(kept.failures) == 20
    assert len(kept.failures[0].exit.last_lines) == first
    assert len(kept.failures[-1].exit.last_lines) == last
    assert len(kept.failures[-1].exit.error) == words
    assert len(kept.events) == events


def refusal(count: int, length: int = 300) -> Status:
    """Return the status of a run that is refused for this number of reasons."""
    problems = [Problem(f"spec.env.A{n}", "x" * length, "use less") for n in range(count)]
    said = InvalidRequest(problems, Message("RecordWrong", {"name": "digits-1"})).message
    told = Message("Refused", {"why": said})
    queued = Status(phase=Phase.QUEUED, reason=Reason.QUEUED)
    return failed_status(queued, Reason.START_FAILED, told, 2.0)


@pytest.mark.parametrize(
    ("count", "shown"), [(5, 5), (12, 12), (30, 30), (60, 60), (110, 20), (1000, 20)]
)
def test_a_refusal_names_as_many_problems_as_there_is_room_for(count: int, shown: int) -> None:
    """A status contains the message of a refusal several times. If the status is too large, these
    repetitions are removed first, and problems from the list only afterwards. Of a hundred
    problems, the first are listed, with the number of the others, in every language.
    """
    written = custom_resource.write_status(refusal(count))
    assert len(as_in_go(written).encode()) <= sizes.STATUS_BYTES
    kept = custom_resource.read_status({"status": written})
    lines = kept.message.splitlines()
    assert lines[0] == f"the TFCluster digits-1 is invalid for {count} reasons:"
    rest = [f"  - {count - shown} more."] if shown < count else []
    assert len(lines) == 1 + shown + len(rest)
    assert lines[shown + 1 :] == rest
    assert english(kept.messages) == kept.message
    failed = written["conditions"][-1]
    assert failed["type"] == "Failed"
    assert failed["message"].startswith("the TFCluster digits-1 is invalid for")


def test_one_problem_of_any_length_is_told_as_far_as_there_is_room() -> None:
    """A status whose only message is too long keeps its first thousand characters."""
    (told,) = refusal(1).messages
    status = replace(refusal(1), message="<" * 6000, messages=(told,) * 100)
    kept = custom_resource.read_status({"status": custom_resource.write_status(status)})
    assert kept.message == "<" * 1000


def test_a_problem_is_counted_once_however_often_a_refusal_is_shortened() -> None:
    """If a refusal is shortened several times, the numbers of omitted problems are added up."""
    (told,) = refusal(1000).messages
    for most in (20, 5, 7):
        told = with_few_problems(told, most)
    assert str(told).endswith("\n  - 995 more")


def test_what_people_write_about_a_run_leaves_room_for_other_annotations() -> None:
    """The longest note, display name and tags take less than a quarter of the size that Kubernetes
    allows for annotations.
    """
    tags = tuple(f"{number:02}{'学' * (TAG_LENGTH - 2)}" for number in range(MOST_TAGS))
    most = Annotations("<" * NOTE_LENGTH, "<" * DISPLAY_NAME_LENGTH, tags)
    texts = custom_resource.write_annotations(Annotations(), most).items()
    assert sum(sizes.text_bytes(text) for pair in texts for text in pair) < sizes.MARK_BYTES / 4
    assert custom_resource.read_annotations({"annotations": dict(texts)}) == most


def test_the_text_of_the_cases_has_characters_of_all_kinds() -> None:
    """The text in the specs of SPECS has characters of each size: some take one, two, three or four
    bytes, a control character takes six.
    """
    assert {len(as_in_go(character).encode()) - 2 for character in TEXT} == {1, 2, 3, 4, 6}
