"""The options of a launch in a form, and problems next to their inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from support.project import DATA

from tfcluster_magic import i18n
from tfcluster_magic.cli.launch import launch_command
from tfcluster_magic.errors import Problem
from tfcluster_magic.launch import form_fields
from tfcluster_magic.launch.options import OPTIONS, Kind, fill_in_defaults, read_options
from tfcluster_magic.launch.validation import validate
from tfcluster_magic.launch_checks import local
from tfcluster_magic.quota.preflight import AvailableResources, Limit
from tfcluster_magic.spec import Mode, ServerKind, Spec

GIB = 2**30
FIELDS = {field["key"]: field for field in form_fields.form_fields(is_here=False)}
BESIDE = {"program", "name", "sha256", "file", "config", "backend"}
BESIDE |= {"wait", "follow", "timeout", "form", "dry_run"}
"""Arguments of `launch` that are no options of a cluster; they have their own inputs or buttons."""


def test_every_option_of_the_command_line_is_in_the_form() -> None:
    """The form has exactly the options of `launch`, in the same order."""
    options = [param.name for param in launch_command.params if param.name not in BESIDE]
    assert list(FIELDS) == options


def test_a_field_says_what_it_may_hold() -> None:
    """A field has the bounds of the models; its default is written as a user would write it."""
    workers = FIELDS["workers"]
    assert (workers["kind"], workers["minimum"], workers["maximum"]) == ("whole", 0, 1000)
    assert workers["default"] == {"between-graph": "2", "in-graph": "2"}
    assert FIELDS["ps"]["default"] == {"between-graph": None, "in-graph": "1"}
    assert FIELDS["cpu"]["exclusiveMinimum"] == 0 and FIELDS["cpu"]["maximum"] == 1024
    assert FIELDS["gpu"]["maximum"] == 64
    assert FIELDS["queue_timeout"]["default"]["in-graph"] is None
    assert FIELDS["grace"]["default"]["in-graph"] == "10s"
    assert FIELDS["server"]["words"] == [kind.value for kind in ServerKind]


def test_defaults_of_the_form_are_what_a_launch_gets() -> None:
    """A form filled with all defaults requests the same launch as an empty form."""
    for mode in Mode:
        said = {
            key: f["default"][mode.value] for key, f in FIELDS.items() if mode.value in f["modes"]
        }
        specs = []
        for options in (said, {}):
            values = read_options({**options, "mode": mode.value})
            values.put(("program",), None)
            fill_in_defaults(values)
            assert not values.problems
            if mode is Mode.BETWEEN_GRAPH:
                values.put(("program",), PROGRAM)
            specs.append(validate(values.spec))
        assert specs[0] == specs[1]


PROGRAM = {"kind": "cell", "source": "cell", "entrypoint": "cell.py", "sha256": "0" * 64}


def test_a_field_says_when_it_means_something() -> None:
    """An option that a mode refuses or ignores is not offered in that mode."""
    for key in ("chief", "evaluator", "chief_memory", "restarts", "success_policy", "pass_flags"):
        assert FIELDS[key]["modes"] == ["between-graph"]
    for key in ("server", "idle_timeout"):
        assert FIELDS[key]["modes"] == ["in-graph"]
    assert len(FIELDS["workers"]["modes"]) == 2
    sections = {field["section"] for field in FIELDS.values()}
    assert sections == {"basic", "resources", "limits", "pods"}


def test_what_only_pods_have_is_offered_on_kubernetes_alone() -> None:
    """If tasks are processes of this machine, the form has no image, claim or secret."""
    local = {field["key"] for field in form_fields.form_fields(is_here=True)}
    assert FIELDS.keys() - local == {
        "image", "image_pull_secret", "volume", "secret", "annotation", "data_claim"
    }  # fmt: skip
    assert FIELDS["volume"]["example"] == "CLAIM:PATH[:ro]"


def test_the_python_of_pods_is_one_of_their_image() -> None:
    """On Kubernetes, the form shows the field for the Python next to the image, and suggests no
    Python of this machine.
    """
    (local,) = (
        field for field in form_fields.form_fields(is_here=True) if field["key"] == "python"
    )
    assert (local["section"], FIELDS["python"]["section"]) == ("basic", "pods")
    assert FIELDS["python"]["example"] == "python3"


# For each kind of option, a value that differs from the defaults of all options of this kind.
VALUES: dict[Kind, object] = {
    Kind.WHOLE: 5,
    Kind.NUMBER: 1.5,
    Kind.MEMORY: "2Gi",
    Kind.DURATION: 5400,
    Kind.SWITCH: True,
    Kind.FILE: "/usr/bin/python3",
    Kind.PAIRS: {"A": "b=c d", "EMPTY": ""},
    Kind.IMAGE: "registry:5000/tf:1",
    Kind.NAMES: ["one", "two"],
    Kind.VOLUMES: ["images:/mnt/a b:ro", "old/sub:/mnt/old"],
    Kind.SECRETS: ["s3", "key:/mnt/key", "minio:ID=user,KEY=a.b"],
    Kind.ANNOTATIONS: {"a.io/b": "c=d"},
    Kind.CLAIM: "10Gi:shared",
    Kind.RUNS: ["prepare-3", "digits-12:end"],
}
REPEATED = DATA / "launch_form.json"


def of_the_table(mode: Mode, values: Mapping[str, object]) -> Spec:
    """Return the spec of a launch in this mode with these options."""
    read = read_options({**values, "mode": mode.value})
    read.put(("program",), dict(PROGRAM) if mode is Mode.BETWEEN_GRAPH else None)
    fill_in_defaults(read)
    assert not read.problems
    return validate(read.spec)


def test_every_option_of_a_run_is_in_the_form_that_repeats_it(pytestconfig: pytest.Config) -> None:
    """Each option of a record is written into the form, and the form makes the same record.

    labextension/test/launch.test.ts checks that the page fills in its form with the same values.
    """
    repeated = []
    for mode in Mode:
        said = {
            option.key: option.words[-1] if option.words else VALUES[option.kind]
            for option in OPTIONS
            if option.only in (None, mode) and option.path[0] not in ("mode", "*")
        }
        spec = of_the_table(mode, said)
        values = form_fields.form_values(spec)
        assert values.keys() - {"mode"} == said.keys()
        assert of_the_table(mode, values) == spec
        repeated.append(values)
    # the keys of a field that the test of the page needs
    told = ("key", "kind", "path", "modes", "default")
    fields = [{key: field[key] for key in told} for field in FIELDS.values()]
    lines = {"form": fields, "options": repeated}
    parts = [
        f'"{name}": [\n' + ",\n".join(json.dumps(each) for each in lines[name]) + "\n]"
        for name in lines
    ]
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    if pytestconfig.getoption("--rewrite"):
        REPEATED.write_text(text)
    assert text == REPEATED.read_text(), "read the difference; --rewrite accepts it"


def test_a_form_says_counts_that_a_launch_found_out_by_itself() -> None:
    """The form shows the number of tasks that a run had, and the sizes of each type."""
    spec = of_the_table(Mode.BETWEEN_GRAPH, {"memory": "2Gi", "ps": 1})
    assert form_fields.form_values(spec) == {
        "workers": "2",
        "ps": "1",
        "chief": False,
        "evaluator": False,
        "worker_memory": "2Gi",
        "ps_memory": "2Gi",
    }


def test_help_has_no_default_in_brackets() -> None:
    """The default is in the input; the help does not repeat it."""
    assert FIELDS["workers"]["help"] == "number of workers"
    assert all("[" not in field["help"] and field["label"] for field in FIELDS.values())


@pytest.mark.parametrize(
    ("field", "said", "option"),
    [
        ("--worker-memory", {}, "worker_memory"),
        ("--env A", {}, "env"),
        ("--name", {}, "name"),
        ("--sha256", {}, "sha256"),
        ("--python", {}, "python"),
        ("program", {}, "program"),
        ("arguments after --", {}, "arguments"),
        ("tensorflow", {}, "kernelspec"),
        ("replicas.worker.count", {"workers": 6}, "workers"),
        ("spec.replicas.ps.count", {}, "ps"),
        ("replicas.worker.resources.memory", {"memory": "2Gi"}, "memory"),
        (
            "replicas.worker.resources.memory",
            {"memory": "2Gi", "worker_memory": "1Gi"},
            "worker_memory",
        ),
        ("replicas.worker.resources.memory", {}, "worker_memory"),
        ("replicas.ps.resources.gpu", {"ps_gpu": 1}, "ps_gpu"),
        ("spec.lifecycle.maxDuration", {}, "max_duration"),
        ("spec.program.arguments[1]", {}, "arguments"),
        ("replicas", {"workers": 200}, "workers"),
        ("--volume 0 path", {}, "volume"),
        ("pods.secrets[1].name", {}, "secret"),
        ("image", {}, "image"),
        ("log folder", {}, None),
        ("bogus", {}, None),
    ],
)
def test_a_problem_stands_at_its_input(
    field: str, said: dict[str, object], option: str | None
) -> None:
    """For each field that a refusal names, the form finds the input next to which it shows the
    problem.
    """
    assert form_fields.option_for(field, said) == option


def test_where_room_is_short_the_number_that_fits_can_be_used() -> None:
    """If six workers of 2 GiB are requested and 8 GiB are free, the form can offer four."""
    limit = Limit(total=8.0 * GIB, free=8.0 * GIB)
    room = AvailableResources(
        cpu=Limit(total=8, free=8), memory=limit, gpu=Limit(total=0, free=0), max_tasks=9
    )
    replicas = {"worker": {"count": 6, "resources": {"memory": "2Gi"}}}
    spec = validate({"program": PROGRAM, "replicas": replicas})
    (told,) = form_fields.form_problems(
        local.check_fit(spec, room).problems, {"workers": 6, "memory": "2Gi"}
    )
    assert (told["option"], told["value"], told["fits"]) == ("workers", 6, 4)
    assert "4 workers of 2Gi fit" in told["message"]


def test_problems_are_told_as_json_has_it() -> None:
    """A value that JSON cannot express is shown as text."""
    told = form_fields.form_problems(
        [Problem("--grace", float("inf"), "x"), Problem("--env", {"A"}, "x")], {}
    )
    assert [problem["value"] for problem in told] == ["inf", "{'A'}"]


def test_a_form_speaks_the_language_of_the_moment() -> None:
    """The texts of a form are made for each request, so that one server serves several
    languages.
    """
    with i18n.language("zh-CN"):
        assert len(form_fields.form_fields(is_here=False)) == len(FIELDS)
        assert form_fields.option_for(i18n._("arguments after --"), {}) == "arguments"
