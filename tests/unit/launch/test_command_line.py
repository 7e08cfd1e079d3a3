"""A launch as arguments of the command line, and back through its real parser."""

from __future__ import annotations

import ast
import contextlib
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

from tfcluster_magic import ClusterManager, program
from tfcluster_magic.cli import grammar
from tfcluster_magic.cli.launch import launch_command
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.launch.cluster_file import cluster_file_of
from tfcluster_magic.launch.form_fields import form_values
from tfcluster_magic.launch.launch_as_command import (
    launch_argv,
    magic_line,
    notebook_cell,
    options_of,
    shell_command,
)
from tfcluster_magic.launch.options import BY_KEY, OPTIONS, Kind, fill_in_defaults, read_options
from tfcluster_magic.launch.validation import validate
from tfcluster_magic.output.documents import to_yaml
from tfcluster_magic.spec import Metadata, Program, Spec, TFCluster

CELL = {"kind": "url", "source": "http://h/p.py", "entrypoint": "p.py", "sha256": "0" * 64}
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
seconds = st.one_of(
    st.integers(1, 10**7), st.floats(0.001, 10**6, allow_nan=False), st.sampled_from(["90m", "1d"])
)
VALUES: dict[Kind, st.SearchStrategy[object]] = {
    Kind.WHOLE: st.integers(0, 30),
    Kind.NUMBER: st.one_of(st.integers(1, 64), st.floats(0.001, 1000, allow_nan=False)),
    Kind.MEMORY: st.sampled_from(["128Mi", "2Gi", "1.5Gi"]),
    Kind.DURATION: seconds,
    Kind.SWITCH: st.booleans(),
    Kind.FILE: st.sampled_from(["/usr/bin/python3", "/a b/it's/python"]),
    Kind.PAIRS: st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), text, max_size=3),
}
claims = st.sampled_from(["images", "a.b"])
paths = st.sampled_from(["/mnt/a", "/mnt/a b", "/x=y", "/数据"])
VALUES |= {
    Kind.IMAGE: st.sampled_from(["tensorflow", "registry:5000/team/image@sha256:00"]),
    Kind.NAMES: st.lists(claims, min_size=1, max_size=2),
    Kind.VOLUMES: st.lists(
        st.tuples(
            claims, st.sampled_from(["", "/sub", "/a/b c"]), paths, st.sampled_from(["", ":ro"])
        ).map(lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}{parts[3]}"),
        min_size=1,
        max_size=2,
    ),
    Kind.SECRETS: st.lists(
        st.one_of(claims, paths.map("s3:{}".format), st.just("s3:ID=user,KEY=a.b")),
        min_size=1,
        max_size=2,
    ),
    Kind.ANNOTATIONS: st.dictionaries(st.sampled_from(["a", "b.io/c"]), text, min_size=1),
    Kind.CLAIM: st.sampled_from(["10Gi", "1Ti:shared.io"]),
    Kind.RUNS: st.lists(
        st.sampled_from(["prepare-3", "a-1:success", "b-2:end"]), min_size=1, max_size=3
    ),
}
options = st.fixed_dictionaries(
    {},
    optional={o.key: st.sampled_from(o.words) if o.words else VALUES[o.kind] for o in OPTIONS},
)


def parsed(words: list[str]) -> dict[str, Any]:
    """Parse the words of a `launch` with the command line's own parser; return the options that are
    set.
    """
    assert words[0] == "launch"
    with launch_command.make_context("launch", words[1:], obj=Terminal()) as ctx:
        found = {**ctx.params, "arguments": tuple(grammar.program_arguments(ctx) or ())}
    return {key: value for key, value in found.items() if value not in (None, (), False, "table")}


def spec_of(said: dict[str, Any]) -> Spec | None:
    """Return the spec that `planning` makes of these options; None if it refuses them."""
    said = {key: value for key, value in said.items() if key in BY_KEY}
    values = read_options(said)
    if values.get(("mode",)) != "in-graph":
        values.put(("program",), dict(CELL))
    fill_in_defaults(values)
    if values.problems:
        return None
    with contextlib.suppress(InvalidRequest):
        return validate(values.spec)
    return None


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(options)
def test_options_of_a_spec_give_the_same_spec_again(said: dict[str, Any]) -> None:
    """The arguments written for any record, parsed again, request the same launch."""
    spec = spec_of(said)
    if spec is None:
        return
    words = launch_argv(None, (), "digits", options_of(spec))
    assert spec_of(parsed(words)) == spec


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(options)
def test_a_form_of_a_spec_asks_for_the_same_spec_again(said: dict[str, Any]) -> None:
    """The fields of a form that repeats a launch give the same options as the launch."""
    spec = spec_of(said)
    if spec is not None:
        assert spec_of(form_values(spec)) == spec


@settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.lists(text, max_size=4), options)
def test_words_survive_the_shell_and_the_parser(arguments: list[str], said: dict[str, Any]) -> None:
    """A launch written as arguments and quoted for a shell is parsed as the same launch."""
    words = launch_argv("-odd name.py", arguments, "digits", said)
    found = parsed(shlex.split(shlex.join(words)))
    assert found.pop("program") == "./-odd name.py"
    assert found.pop("name") == "digits"
    assert found.pop("arguments", ()) == tuple(arguments)
    assert spec_of(found) == spec_of(said)


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.lists(text, max_size=3), st.booleans())
def test_a_line_of_a_notebook_means_the_words_that_it_was_made_of(
    arguments: list[str], cell: bool
) -> None:
    """A launch written as a line of the magic reaches TFCluster as the same arguments, after
    IPython has expanded {names} and split the line.
    """
    words = launch_argv(None if cell else "train.py", [*arguments, "$HOME {x} {{y}} it's $$z"], "n")
    source = magic_line(words, cell) + ("\nprint(1)\n" if cell else "\n")
    code = TransformerManager().transform_cell(source)
    (call,) = (
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and node.args
    )
    kind, line = (ast.literal_eval(argument) for argument in call.args[:2])
    assert kind == "tfcluster"
    shell = InteractiveShell.instance()
    shell.user_ns.update(x=1, y=2, z=3, HOME="/nowhere")
    assert shlex.split(shell.var_expand(line, depth=0)) == words


def test_what_is_so_anyway_is_left_out() -> None:
    """The arguments of a launch without options are only the program; a size that all types share
    appears once.
    """
    assert options_of(validate({"program": CELL, "replicas": {"worker": {"count": 2}}})) == {
        # explicit zeros, because it is unknown here which task types the program's text asks for
        "ps": 0,
        "chief": 0,
        "evaluator": 0,
    }
    sizes = {"resources": {"memory": "2Gi"}}
    replicas = {"worker": {"count": 2, **sizes}, "ps": {"count": 1, **sizes}}
    spec = validate({"mode": "in-graph", "replicas": replicas})
    assert options_of(spec) == {"mode": spec.mode, "memory": "2Gi"}
    words = launch_argv(None, options=options_of(spec))
    assert words == ["launch", "--mode", "in-graph", "--memory", "2Gi"]


def test_wrong_words_are_written_as_they_were_typed() -> None:
    """A launch that will be refused can be written as a line, too."""
    words = launch_argv(None, (), "Bad Name", {"workers": "many", "grace": -3, "env": "A"})
    assert words[1:] == ["--workers", "many", "--env", "A", "--grace=-3", "--name", "Bad Name"]
    with pytest.raises(click.UsageError):
        parsed(["launch", "--frobnicate"])


def record(spec: Spec, name: str = "digits") -> TFCluster:
    metadata = Metadata(name=f"{name}-1", cluster=name, run=1, uid="u", created_at=0.0)
    return TFCluster(metadata=metadata, spec=spec)


@pytest.fixture
def project(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with a program of each kind."""
    (here / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--ps_hosts')\n"
        "print(p.parse_known_args())\n"
    )
    (here / "folder").mkdir()
    (here / "folder" / "run.sh").write_text("echo hello\n")
    monkeypatch.chdir(here)
    return here


def taken(source: str | None, cell: str | None, here: Path) -> Program:
    place: dict[str, Any] = {"workspace": here, "cwd": here, "arguments": ["--steps", "a b"]}
    if cell is not None:
        return program.snapshot_cell(cell, **place)[0]
    assert source is not None
    return program.snapshot(source, **place)[0]


@pytest.mark.parametrize("source", ["train.py", "folder"])
def test_the_command_of_a_run_launches_it_again(project: Path, source: str) -> None:
    """Pasted into a shell, the command of a run makes the same spec, from any folder."""
    spec = ClusterManager().plan(source, ["--steps", "a b"], workers=3, chief=True).cluster.spec
    command = shell_command(record(spec))
    assert command is not None
    folder, _, line = command.rpartition(" && ")
    if source == "train.py":
        assert shlex.split(folder) == ["cd", str(project)]
    words = shlex.split(line)
    assert words[0] == "tfcluster"
    assert "--ps" not in words  # without `--ps`, the program's text decides, as at the first launch
    assert ClusterManager().plan(**parsed(words[1:])).cluster.spec == spec


def test_the_line_of_a_run_launches_it_from_any_notebook(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pasted into a cell, the line of a run runs the same program, wherever the notebook is."""
    spec = ClusterManager().plan("train.py", ["--steps", "a b"], workers=3).cluster.spec
    line = notebook_cell(record(spec))
    assert (
        line == f"%tfcluster launch --workers 3 --name digits {project}/train.py -- --steps 'a b'"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = ClusterManager().plan(**parsed(shlex.split(line)[1:])).cluster.spec
    assert spec.program is not None and again.program is not None
    assert again.program.sha256 == spec.program.sha256
    assert (again.program.arguments, again.replicas) == (spec.program.arguments, spec.replicas)


def test_the_line_of_a_cell_is_the_cell(project: Path) -> None:
    """A run of a cell becomes a cell again: the line of the magic, and below it the program."""
    spec = ClusterManager().plan(cell="import os\nprint('hello')\n").cluster.spec
    assert (
        notebook_cell(record(spec)) == "%%tfcluster launch --name digits\nimport os\nprint('hello')"
    )
    assert shell_command(record(spec)) is None, "a shell has no cells"


@pytest.mark.parametrize(
    ("source", "cell", "named"),
    [
        ("train.py", None, "{here}/train.py"),
        ("folder", None, None),
        ("{here}/folder", None, "{here}/folder"),
        (None, "print('hello')", None),
    ],
)
def test_a_cluster_file_of_a_run_launches_it_again(
    project: Path, tmp_path: Path, source: str | None, cell: str | None, named: str | None
) -> None:
    """A cluster file names the program if it can be found from anywhere; otherwise it has the
    snapshot.
    """
    source = source and source.format(here=project)
    said: dict[str, Any] = {"cell": cell, "workers": 3, "grace": "5s", "env": {"A": "b"}}
    arguments = ["--steps", "a b"]
    spec = ClusterManager().plan(source, arguments, **said).cluster.spec
    file = tmp_path / "elsewhere" / "cluster.yaml"
    file.parent.mkdir()
    file.write_text(to_yaml(cluster_file_of(record(spec))))
    again = ClusterManager().plan(file=str(file)).cluster
    assert again.metadata.cluster == "digits"
    before, after = spec.program, again.spec.program
    assert before is not None and after is not None
    if named is not None:
        assert f"source: {named.format(here=project)}" in file.read_text()
        assert "sha256" not in file.read_text()
    assert (after.sha256, after.arguments) == (before.sha256, tuple(arguments))
    assert after.working_dir == before.working_dir
    assert (again.spec.replicas, again.spec.lifecycle, again.spec.env) == (
        spec.replicas,
        spec.lifecycle,
        spec.env,
    )


def test_what_a_run_resumed_is_not_resumed_by_its_command() -> None:
    """The command of a resumed run starts training from zero; only `rerun --resume` continues from
    checkpoints.
    """
    spec = validate({"mode": "in-graph", "replicas": {"worker": {"count": 2}, "ps": {"count": 1}}})
    resumed = validate({"program": CELL, "resumeFrom": "digits-1"})
    assert shell_command(record(spec)) == "tfcluster launch --mode in-graph --name digits"
    assert "resumeFrom" not in str(cluster_file_of(record(resumed)))
    assert "resume" not in notebook_cell(record(resumed))


def test_what_only_pods_have_is_written_in_its_short_form() -> None:
    """Claims, secrets and annotations of a run are written in the options' short form."""
    volume = {"claim": "images", "path": "/mnt/a", "subPath": "b/c", "readOnly": True}
    pods = {
        "imagePullSecrets": ["registry"],
        "volumes": [volume, {"claim": "old", "path": "/mnt/old"}],
        "secrets": [
            {"name": "s3"},
            {"name": "key", "path": "/mnt/key"},
            {"name": "minio", "variables": {"ID": "user", "KEY": "a.b"}},
        ],
        "annotations": {"a.io/b": "c d"},
        "dataClaim": {"size": "10Gi", "storageClass": "shared"},
    }
    spec = validate({"mode": "in-graph", "image": "team/tf:1", "pods": pods})
    words = launch_argv(None, options=options_of(spec))

    assert words[words.index("--image") :] == [
        "--image", "team/tf:1", "--image-pull-secret", "registry",
        "--volume", "images/b/c:/mnt/a:ro", "--volume", "old:/mnt/old",
        "--secret", "s3", "--secret", "key:/mnt/key", "--secret", "minio:ID=user,KEY=a.b",
        "--annotation", "a.io/b=c d",
        "--data-claim", "10Gi:shared",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "said", "how"),
    [
        ("volume", "/mnt/a", "CLAIM:PATH"),
        ("volume", "images:/mnt/a:rx", ":ro after it"),
        ("secret", ":/mnt/s3", "NAME:PATH"),
        ("secret", "s3:ID", "VARIABLE=KEY"),
        ("secret", "s3:ID=a,", "VARIABLE=KEY"),
        ("annotation", "prometheus", "KEY=VALUE"),
        ("data_claim", "", "SIZE:CLASS"),
    ],
)
def test_words_that_say_no_claim_or_secret_are_refused(option: str, said: str, how: str) -> None:
    """An invalid short form is refused by its option, with the right form."""
    (problem,) = read_options({option: [said] if option != "data_claim" else said}).problems

    assert problem.field == "--" + option.replace("_", "-")
    assert how in str(problem.allowed)
