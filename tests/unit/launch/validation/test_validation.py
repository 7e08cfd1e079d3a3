"""Validation of untrusted data as a Spec."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.invalid_specs import CELL, WRONG, Wrong

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.launch.validation import validate, validate_name
from tfcluster_magic.spec import Spec, TFCluster, schema
from tfcluster_magic.spec.record_size import AROUND
from tfcluster_magic.spec.spec import PAYLOAD_BYTES


def problems_of(data: dict[str, object]) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        validate(data)
    return {str(p.field): str(p.allowed) for p in caught.value.problems}


def test_every_problem_is_reported_at_once() -> None:
    """A request with seven mistakes reports all seven, each with the allowed values."""
    found = problems_of(
        {
            "mode": "ingraph",
            "replicas": {
                "worker": {"count": -1, "resources": {"cpu": "many", "memory": "3x"}},
                "wroker": {"count": 1},
            },
            "color": 1,
            "lifecycle": {"maxDuration": "3q"},
        }
    )
    assert found["spec.mode"] == "use between-graph or in-graph"
    assert ">= 0" in found["spec.replicas.worker.count"]
    assert "number" in found["spec.replicas.worker.resources.memory"]
    assert "did you mean 'worker'?" in found["spec.replicas.wroker"]
    assert found["spec.color"].startswith("no such field. Allowed: mode, ")
    assert "1h30m" in found["spec.lifecycle.maxDuration"]
    assert "spec.replicas.worker.resources.cpu" in found
    assert len(found) == 7


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_mistake_is_told_with_its_field_and_what_is_allowed(wrong: Wrong) -> None:
    """Each mistake is reported as the only problem, with its field and the allowed values."""
    ((field, allowed),) = problems_of(wrong.spec).items()

    assert field.endswith(wrong.field)
    assert wrong.allowed in allowed


def test_durations_are_read_as_people_write_them() -> None:
    """Durations may be seconds or text; the record has seconds."""
    spec = validate({"program": CELL, "lifecycle": {"grace": "1m30s", "maxDuration": 60}})
    assert (spec.lifecycle.grace, spec.lifecycle.max_duration) == (90, 60)


def test_a_valid_spec_survives_json() -> None:
    """A valid spec is unchanged after it is written as JSON and read again; names in JSON are
    camelCase.
    """
    spec = validate({"program": CELL, "lifecycle": {"reclaimAfter": 5}})
    raw = msgspec.json.encode(spec)
    assert b"reclaimAfter" in raw
    assert msgspec.json.decode(raw, type=Spec) == spec


@pytest.mark.parametrize(
    "name", ["", "Digits", "digits-2", "-a", "a_b", "x" * 41, "1a", "a-", "a\n"]
)
def test_bad_names_are_refused_with_the_rule(name: str) -> None:
    """A name that cannot be a host name, or that could be the name of a run, is refused."""
    with pytest.raises(InvalidRequest, match="lower-case"):
        validate_name(name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["mode", "replicas", "worker", "count", "program", "env", "lifecycle"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["mode", "replicas", "program", "env", "x"]), json_values))
def test_any_json_is_accepted_or_refused_in_words(data: dict[str, object]) -> None:
    """For any JSON, validation returns a Spec, or problems, each with its field."""
    try:
        assert isinstance(validate(data), Spec)
    except InvalidRequest as error:
        assert error.problems
        assert all(str(p.field).startswith("spec") and str(p.allowed) for p in error.problems)


def test_the_schema_is_exported() -> None:
    """The JSON Schema describes a whole TFCluster with its bounds."""
    definitions = schema()["$defs"]
    assert isinstance(definitions, dict)
    assert definitions["Replicas"]["properties"]["count"]["maximum"] == 1000
    assert set(definitions["TFCluster"]["properties"]) == {
        f.encode_name for f in msgspec.structs.fields(TFCluster)
    }


def test_texts_count_by_their_bytes() -> None:
    """Environment, arguments and a program in the record may have 64 KiB together; a letter of
    three bytes counts as three. The refusal has the size of the request and a remedy.
    """
    others = len("A") + len("cell") + len("cell.py") + 4 * AROUND
    exact = {"env": {"A": "x" * (PAYLOAD_BYTES - others)}, "program": CELL}
    assert validate(exact).env
    for env in ({"A": "x" * PAYLOAD_BYTES}, {"A": "字" * (PAYLOAD_BYTES // 3 + 1)}):
        with pytest.raises(InvalidRequest) as caught:
            validate({"env": env, "program": CELL})
        (problem,) = caught.value.problems
        assert problem.field == "spec.env"
        assert str(problem.value).endswith(" bytes")
        assert "workspace" in str(problem.allowed)
