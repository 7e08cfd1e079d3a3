"""Projects: reading `tfcluster.yaml`, and launching it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfcluster_magic.cli.launch import launch_command
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.launch import LaunchRequest, ProjectUse
from tfcluster_magic.launch.cluster_file import cluster_file_of
from tfcluster_magic.launch.form_fields import form_values
from tfcluster_magic.launch.launch_as_command import shell_command
from tfcluster_magic.launch.options import OPTIONS
from tfcluster_magic.launch.planning import plan_launch, request_launch, request_rerun
from tfcluster_magic.launch.project import (
    MOST_BYTES,
    MOST_PROJECTS,
    ProjectFinder,
    ProjectProblem,
    complete_configs,
    project_schema,
    read_project,
)
from tfcluster_magic.output.documents import to_yaml
from tfcluster_magic.quota.preflight import Preflight
from tfcluster_magic.spec import TFCluster

FILE = """\
program: train.py
arguments: --epochs 3
workers: 4
worker-memory: 1Gi
env: {BATCH: 010}
configurations:
  quick:
    workers: 1
    memory: 256Mi
    env: {MORE: on}
"""
Make = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path) -> Make:
    """Return a function that writes a project."""

    def make(text: str = FILE, program: str = "print(1)\n", name: str = "digits") -> Path:
        folder = tmp_path / "work" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(program)
        (folder / "tfcluster.yaml").write_text(text)
        return folder

    return make


def asked(folder: Path, **words: Any) -> LaunchRequest:
    """Return the request for a launch of `folder`; `words` are options."""
    return request_launch(folder.parent, str(folder), folder=folder.parent, **words)


def launched(request: LaunchRequest) -> TFCluster:
    """Return the run that a request would launch."""
    return plan_launch(request, 1, Preflight()).cluster


def wrong(text: str, project: Make) -> list[str]:
    """Return the problems of a project's file with this text, without the folder's path."""
    folder = project(text)
    with pytest.raises(InvalidRequest) as refused:
        read_project(folder, "tfcluster.yaml")
    return [str(problem) for problem in refused.value.problems]


def test_a_folder_with_the_file_is_launched_with_its_options(project: Make) -> None:
    """Program, arguments, name and options come from the file. The value of a variable stays as it
    is written: `010` is not read as the number 8.
    """
    made = asked(project())
    assert (made.cluster, made.name_given) == ("digits", False)
    program = made.spec.program
    assert program is not None
    assert (program.entrypoint, program.arguments) == ("train.py", ("--epochs", "3"))
    assert sorted(program.files or {}) == ["tfcluster.yaml", "train.py"]
    assert made.spec.replicas.worker.count == 4
    assert made.spec.replicas.worker.resources.memory == "1Gi"
    assert made.spec.env == {"BATCH": "010"}, "YAML would read 8"
    told = str(made.inferred[0])
    for setting in ("program: train.py", "workers: 4", "env: BATCH=010", "tfcluster.yaml"):
        assert setting in told


def test_a_configuration_replaces_what_all_have_and_options_replace_both(project: Make) -> None:
    """An option of the launch overrides the configuration, which overrides the rest of the file;
    variables are added.
    """
    folder = project()
    quick = asked(folder, config="quick").spec
    assert quick.replicas.worker.count == 1
    assert quick.replicas.worker.resources.memory == "256Mi", "memory is each task's"
    assert quick.env == {"BATCH": "010", "MORE": "on"}
    made = asked(folder, config="quick", workers="3", env=["BATCH=7"], name="mine")
    assert made.spec.replicas.worker.count == 3
    assert made.spec.env == {"BATCH": "7", "MORE": "on"}
    assert (made.cluster, made.name_given) == ("mine", True)
    use = ProjectUse.of(made.inferred)
    assert use is not None
    assert (use.folder, use.config, use.replaced) == (str(folder), "quick", ("workers",))
    more = asked(folder, memory="2Gi", arguments=["--x"]).spec
    assert more.replicas.worker.resources.memory == "2Gi", "an option for each task wins"
    assert more.program is not None
    assert more.program.arguments == ("--x",)


def test_the_file_itself_names_the_project(project: Make) -> None:
    """`launch digits/tfcluster.yaml` means the same as `launch digits/`; a program in the folder is
    launched without the project's options.
    """
    folder = project()
    assert request_launch(folder, str(folder / "tfcluster.yaml")).spec == asked(folder).spec
    assert request_launch(folder, str(folder / "train.py")).spec.replicas.worker.count == 2


def test_a_project_without_a_program_is_started_as_a_folder_is(project: Make) -> None:
    """An empty file is a project; its program is found and reported."""
    made = asked(project(""))
    assert "program: train.py" in str(made.inferred[0])


def test_an_in_graph_project_runs_no_program(project: Make) -> None:
    """A project's file may describe servers for a notebook, without a program."""
    made = asked(project("mode: in-graph\nps: 2\n"))
    assert (made.cluster, made.spec.program) == ("digits", None)
    assert made.spec.replicas.ps.count == 2


def test_an_interpreter_is_found_beside_the_file(project: Make, tmp_path: Path) -> None:
    """A relative `python` in the file is relative to the project's folder, not to the working
    folder.
    """
    made = asked(project("python: .venv/bin/python\n"))
    assert made.spec.interpreter == str(tmp_path / "work/digits/.venv/bin/python")


def test_every_problem_is_named_at_its_line(project: Make) -> None:
    """Unknown keys, values of a wrong type and duplicate keys are reported together."""
    text = (
        "workers: many\nwrkers: 3\nprogram: ../x.py\nenv: 3\nchief: 1\nworkers: 2\nps:\n"
        "name: A B\nconfigurations:\n  a:\n    worker_memory: 3\n"
        "    configurations: {}\n  '!': {}\n"
    )
    found = wrong(text, project)
    assert [problem.split(" ")[0].rpartition(":")[2] for problem in found] == [
        *("1", "2", "3", "4", "5", "6", "7", "8", "11", "12", "13")
    ]
    assert found[1].endswith("did you mean workers?")
    assert "first in line 1" in found[5]
    assert found[8].endswith("did you mean worker-memory?")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x 1\nworkers: *x\n", "aliases"),
        ("workers: !!python/object/apply:os.system [id]\n", "write one value"),
        ("workers: [1\n", "it is not YAML"),
        ("workers: 1\n---\nworkers: 2\n", "it is not YAML"),
        ("- 1\n", "write options by their names"),
        ("kind: TFCluster\nspec: {}\n", "tfcluster launch -f"),
        ('arguments: "--name \'a"\n', "not closed"),
        ("arguments: [a, [b]]\n", "write a list of texts"),
        ("env: [BATCH, {a: b}]\n", "got '[BATCH, …]'; write NAME: VALUE"),
        ("argments: {a: [b]}\n", "got '{a: …}'; no option has this name; did you mean arguments"),
        ("max-duration: soon\n", "10m"),
        ("mode: sideways\n", "in-graph"),
        ("program: https://example.com/train.py\n", "name a file of this folder"),
        ("program: /etc/passwd\n", "name a file of this folder"),
        ("program: a/../../train.py\n", "name a file of this folder"),
        ("program: trian.py\n", "did you mean train.py?"),
        ("program: tfcluster.yaml\n", ".py or .sh"),
        ("configurations: [a]\n", "a name for each configuration"),
        ("[" * 3000, "nested too deeply"),
        ("workers: 2\n# \x07\n", "it is not YAML"),
    ],
)
def test_a_file_of_another_kind_is_refused(text: str, why: str, project: Make) -> None:
    """The refusal of a hostile file is one sentence, and the file has no effect."""
    assert why in "; ".join(wrong(text, project))


def test_a_long_file_and_one_that_is_no_file_are_refused(project: Make) -> None:
    """The file's size is limited, links are not followed, and a pipe does not block the launch."""
    assert "too much" in wrong("# " + "x" * MOST_BYTES, project)[0]
    folder = project()
    file = folder / "tfcluster.yaml"
    for make in (
        lambda: os.mkfifo(file),
        lambda: file.symlink_to("/etc/passwd"),
        lambda: file.symlink_to("/dev/zero"),
    ):
        file.unlink()
        make()
        with pytest.raises(InvalidRequest, match=r"link|regular file"):
            read_project(folder)


def test_a_program_that_is_a_link_out_of_the_folder_is_refused(project: Make) -> None:
    """A link to a file outside of the project is not accepted as its program."""
    folder = project()
    (folder.parent / "secret.py").write_text("1")
    (folder / "out.py").symlink_to("../secret.py")
    (folder / "tfcluster.yaml").write_text("program: out.py\n")
    with pytest.raises(InvalidRequest, match="leads out of the folder"):
        asked(folder)


def test_problems_of_a_launch_name_the_line_or_the_option(project: Make) -> None:
    """A problem that concerns several options is reported at the lines that set these options."""
    folder = project("workers: 5000\nenv: {TF_CONFIG: x}\nconfigurations: {a: {ps: 9999}}\n")
    with pytest.raises(InvalidRequest) as refused:
        asked(folder, config="a", gpu="999")
    fields = [str(problem.field) for problem in refused.value.problems]
    assert [field.replace(f"{folder}/", "") for field in fields] == [
        "tfcluster.yaml:1 workers",
        "--gpu",
        "tfcluster.yaml:3 ps",
        "--gpu",
    ]


@pytest.mark.parametrize(
    ("config", "why"),
    [("quik", "did you mean quick?"), ("full", "it has quick"), ("", "it has quick")],
)
def test_an_unknown_configuration_is_refused(config: str, why: str, project: Make) -> None:
    """For an unknown configuration, the error has the existing names, or the most similar name."""
    with pytest.raises(InvalidRequest, match=f"--config.*{why[:-1]}"):
        asked(project(), config=config)


def test_only_a_project_has_configurations(project: Make) -> None:
    """`--config` without a project is refused, and so is a cluster file with a project."""
    folder = project()
    with pytest.raises(InvalidRequest, match="only a project has configurations"):
        request_launch(folder, "train.py", folder=folder, config="quick")
    with pytest.raises(InvalidRequest, match="leave out --file"):
        asked(folder, file="some.yaml")
    with pytest.raises(InvalidRequest, match="program: got 'gone'") as missing:
        request_launch(folder, "gone", folder=folder, config="quick")
    assert "--config" not in str(missing.value)


def parsed(line: str) -> dict[str, Any]:
    """Return the arguments of a launch as the command line reads them."""
    words = shlex.split(line)[2:]
    ctx = launch_command.make_context("launch", words, obj=Terminal())
    known = {option.key for option in OPTIONS} | {"program", "config", "name"}
    said = {k: v for k, v in ctx.params.items() if k in known and v not in (None, ())}
    return said | {"arguments": _after(words)}


def _after(words: list[str]) -> list[str]:
    return words[words.index("--") + 1 :] if "--" in words else []


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"config": "quick"},
        {"workers": "2"},
        {"workers": "2", "config": "quick", "memory": "2Gi"},
        {"gpu": "0", "grace": "10s", "arguments": ["--y"]},
    ],
)
def test_the_command_and_the_file_of_a_run_launch_it_again(
    said: dict[str, Any], project: Make, tmp_path: Path
) -> None:
    """An option overrides the project's file even if its value is the option's default."""
    folder = project(FILE + "  gpus: {gpu: 1}\ngpu: 1\ngrace: 1m\n")
    run = launched(asked(folder, **said))
    line = shell_command(run)
    assert line is not None
    words = parsed(line)
    again = request_launch(tmp_path, words.pop("program"), words.pop("arguments"), **words)
    assert again.spec == run.spec
    use, before = ProjectUse.of(again.inferred), ProjectUse.of(run.status.inferred)
    assert use is not None
    assert before is not None
    assert (use.folder, use.config) == (before.folder, before.config)
    file = tmp_path / "again.yaml"
    file.write_text(to_yaml(cluster_file_of(run)))
    assert request_launch(tmp_path, file=str(file)).spec == run.spec
    values = form_values(run.spec, before.keys)
    words = {"arguments": run.spec.program.arguments if run.spec.program else ()}
    filled = asked(folder, config=before.config, **words, **values)
    assert filled.spec == run.spec


def test_a_rerun_remembers_its_project(project: Make) -> None:
    """A rerun is a run of the same project, and reports the settings that the options of the rerun
    replace.
    """
    run = launched(asked(project(), config="quick"))
    use = ProjectUse.of(request_rerun(run, workers="2").inferred)
    assert use is not None
    assert (use.config, use.replaced) == ("quick", ("workers",))


def test_the_schema_knows_each_option_and_refuses_what_a_launch_refuses(project: Make) -> None:
    """The JSON Schema for editors has the same keys as a launch accepts."""
    schema = project_schema()
    check = jsonschema.Draft7Validator(schema)
    check.check_schema(schema)
    assert {option.flag[2:] for option in OPTIONS} < set(schema["properties"])
    for text in (
        FILE,
        "",
        "chief: true\narguments: [a, 1]\nconfigurations: {a: {cpu: 0.5}, b: }\n",
    ):
        assert not list(check.iter_errors(yaml.safe_load(text)))
        read_project(project(text))
    for text in ("wrkers: 2", "chief: 1", "workers: many", "env: 3", "configurations: {a: {x: 1}}"):
        assert list(check.iter_errors(yaml.safe_load(text))), text
        assert wrong(text, project)


SCALARS = st.one_of(
    st.text(max_size=8), st.integers(), st.booleans(), st.none(), st.floats(), st.dates()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["program", "name", "arguments", "configurations", "workers", "env", "secret", "chief", "x"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_document_is_read_or_refused(project: Make, data: dict[str, Any]) -> None:
    """For any YAML, reading a file succeeds or names problems with their lines."""
    text = yaml.safe_dump(data, allow_unicode=True)
    folder = project(text)
    try:
        read_project(folder)
    except InvalidRequest as error:
        last = text.count("\n") + 1
        assert all(
            isinstance(each, ProjectProblem) and 1 <= each.line <= last for each in error.problems
        )


def test_projects_below_a_folder_are_found(tmp_path: Path) -> None:
    """A search finds projects and their configurations. It skips links, virtual environments and
    folders inside projects, and reports if it stopped early.
    """
    for path in ("a", "a/inner", "b/c/d", ".hidden", "node_modules/x", "v/lib"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "tfcluster.yaml").write_text("configurations: {one: {}, two: {}}\n")
    (tmp_path / "v" / "pyvenv.cfg").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "b")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "tfcluster.yaml").write_text("wrkers: 2\n")
    clock = [0.0]
    finder = ProjectFinder(tmp_path, now=lambda: clock[0])
    found = finder.find()
    assert [str(each.folder.relative_to(tmp_path)) for each in found.projects] == [
        "a",
        "b/c/d",
        "wrong",
    ]
    assert found.complete
    assert found.projects[0].configurations == ("one", "two")
    assert [str(each.field) for each in found.projects[2].problems] == [
        "wrong/tfcluster.yaml:1 wrkers"
    ]
    (tmp_path / "wrong" / "tfcluster.yaml").write_text("workers: 2\n")
    assert finder.find() is found, "what was found is kept for a while"
    assert not finder.find(fresh=True).projects[2].problems
    for number in range(MOST_PROJECTS + 5):
        (tmp_path / f"p{number}").mkdir()
        (tmp_path / f"p{number}" / "tfcluster.yaml").touch()
    clock[0] += 60
    many = finder.find()
    assert len(many.projects) == MOST_PROJECTS
    assert not many.complete


def test_the_names_of_configurations_are_completed(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--config <Tab>` offers the configurations of the typed folder; if the folder's file is
    wrong, it offers nothing.
    """
    folder = project()
    monkeypatch.chdir(folder.parent)
    ctx = click.Context(launch_command, obj=Terminal(), resilient_parsing=True)
    launch_command.parse_args(ctx, ["--workers", "2", "digits/", "--config"])
    (option,) = (param for param in launch_command.params if param.name == "config")
    assert [item.value for item in option.shell_complete(ctx, "q")] == ["quick"]
    (folder / "tfcluster.yaml").write_text("[")
    assert list(complete_configs("digits/", Path.cwd())) == []


def test_the_published_schema_is_current() -> None:
    """The published JSON Schema is equal to the schema that the code generates."""
    published = Path(__file__).parents[3] / "docs/reference/tfcluster-project.schema.json"
    assert json.loads(published.read_text()) == project_schema()
