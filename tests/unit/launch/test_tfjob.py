"""Kubeflow's TFJobs as TFClusters: what is converted, what is reported, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.command_line import Run, here, left_behind, run
from support.project import TESTS
from support.run_manager import manager

from tfcluster_magic import ClusterManager
from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.launch.tfjob import ImportedJob, Remark, read_tfjobs
from tfcluster_magic.program import snapshots

__all__ = ["here", "manager", "run"]  # fixtures of another module

JOBS = TESTS / "data" / "tfjobs"
COMMANDS = {"servers-and-workers": ("python", "/opt/async.py"), "benchmark": ("env",)}
"""The commands of the images, which the user adds to the import of jobs without a command."""
MANIFESTS = sorted(each.name.removesuffix(".tfjob.yaml") for each in JOBS.glob("*.tfjob.yaml"))


def worker(**fields: Any) -> dict[str, Any]:
    """Return a job of one worker; `fields` are fields of its container."""
    container = {"name": "tensorflow", "image": "a/b:1", "command": ["train"], **fields}
    return job(Worker={"template": {"spec": {"containers": [container]}}})


def job(**types: Any) -> dict[str, Any]:
    """Return a job with these task types."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "digits"},
        "spec": {"tfReplicaSpecs": types},
    }


def read(folder: Path, *documents: object, command: tuple[str, ...] = ()) -> list[ImportedJob]:
    """Return the jobs of a file with these documents."""
    file = folder / "jobs.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return read_tfjobs(str(file), command)[0]


def remarks_of(made: ImportedJob) -> dict[str, Remark]:
    """Return the remarks on fields that are not converted, by path. Remarks that all jobs of these
    tests cause are left out.
    """
    each = ("activeDeadlineSeconds", "cleanPodPolicy")
    return {r.path: r for r in made.remarks if not r.path.endswith(each) and r.value != "Never"}


def test_one_command_for_all_types_is_the_images_own(tmp_path: Path) -> None:
    """If all types run the same command, the image's own command is used without a script."""
    (made,) = read(tmp_path, worker(command=["python", "-m", "a"], args=["$(B)"], workingDir="/a"))
    assert made.spec.program is not None
    assert made.spec.program.command == ("python", "-m", "a", "$(B)")
    assert made.spec.program.working_dir == "/a"


def script_of(made: ImportedJob) -> str:
    """Return the script that the tasks run."""
    assert made.spec.program is not None
    (file,) = snapshots.load(made.spec.program, Path()).values()
    return file.content.decode()


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_becomes_a_file_and_what_is_not_carried_over_is_named(
    run: Run, pytestconfig: pytest.Config, name: str
) -> None:
    """Each manifest becomes exactly the TFCluster of its golden file, with exactly the remarks in
    that file.
    """
    words = ["--", *COMMANDS[name]] if name in COMMANDS else []
    done = run("import", str(JOBS / f"{name}.tfjob.yaml"), *words)
    assert done.code == 0, done.err
    for ending, text in ((".tfcluster.yaml", done.out), (".remarks.txt", done.err)):
        file = JOBS / f"{name}{ending}"
        if pytestconfig.getoption("--rewrite"):
            file.write_text(text)
        assert text == file.read_text(), "read the difference; --rewrite accepts it"


def test_there_are_twelve_manifests() -> None:
    """The number of manifests is checked, so that no test is lost when a file is renamed."""
    assert len(MANIFESTS) == 12


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_is_printed_is_what_operator_and_launch_read(
    manager: ClusterManager, tmp_path: Path, name: str
) -> None:
    """If the operator or `launch -f` reads the TFCluster file that an import wrote, it gets the
    same spec as the import got from the TFJob.
    """
    manifest, command = JOBS / f"{name}.tfjob.yaml", COMMANDS.get(name, ())
    ((made,), _others) = read_tfjobs(str(manifest), command)
    text = (JOBS / f"{name}.tfcluster.yaml").read_text()

    assert custom_resource.read(yaml.safe_load(text)).spec == made.spec
    planned = manager.plan(file=str(JOBS / f"{name}.tfcluster.yaml")).cluster
    assert planned.metadata.cluster == made.name
    assert planned.spec == made.spec


def test_every_field_of_a_manifest_is_taken_or_named(tmp_path: Path) -> None:
    """An unknown field is reported wherever it is."""
    made = worker(novel=False, resources={"novel": 0}, env=[{"name": "A", "novel": 1}])
    made["spec"]["runPolicy"] = {"novel": {"a": 1}, "schedulingPolicy": {"novel": 1}}
    made["spec"]["tfReplicaSpecs"]["Worker"] |= {"novel": 1}
    made["spec"]["tfReplicaSpecs"]["Worker"]["template"] |= {"novel": [1]}
    spec = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec |= {"novel": 1, "hostNetwork": False, "affinity": {}}
    for each in (made, made["metadata"], made["spec"]):
        each["novel"] = "x"
    (found,) = read(tmp_path, made)

    container = "spec.tfReplicaSpecs.Worker.template.spec.containers[0]"
    assert remarks_of(found).keys() == {
        "novel",
        "metadata.novel",
        "spec.novel",
        "spec.runPolicy.novel",
        "spec.runPolicy.schedulingPolicy.novel",
        "spec.tfReplicaSpecs.Worker.novel",
        "spec.tfReplicaSpecs.Worker.template.novel",
        "spec.tfReplicaSpecs.Worker.template.spec.novel",
        f"{container}.novel",
        f"{container}.resources.novel",
        f"{container}.env[0].novel",
    }


def test_types_that_run_other_commands_are_told_apart_by_a_script(tmp_path: Path) -> None:
    """A script gives each type its command, its variables and its folder, even if they have unusual
    characters.
    """
    odd = 'it\'s $(NO) `x` "y" $HOME $$(A) *'
    template = {"name": "tensorflow", "image": "a/b:1"}
    ps = {**template, "command": ["sh", "-c", 'echo "$0|$TYPE|$A" "$(pwd)"', odd]}
    ps |= {"env": [{"name": "A", "value": "1"}, {"name": "TYPE", "value": "p s"}]}
    worker = {**template, "command": ["sh", "-c", 'echo "$0|$TYPE|$A" "$(pwd)"', "$(A)$(B)"]}
    secret = {"secretKeyRef": {"name": "keys", "key": "b"}}
    worker |= {"workingDir": str(tmp_path), "env": [{"name": "A", "value": "1"}]}
    worker["env"].append({"name": "B", "valueFrom": secret})
    types = {
        kind: {"template": {"spec": {"containers": [container]}}}
        for kind, container in (("PS", ps), ("Worker", worker))
    }
    (made,) = read(tmp_path, job(**types))

    def printed(task_type: str, **env: str) -> str:
        variables = {"PATH": "/usr/bin:/bin", "TFCLUSTER_TASK_TYPE": task_type, **env}
        words = ["sh", "-c", script_of(made)]
        return subprocess.run(
            words, env=variables, check=True, capture_output=True, text=True, cwd="/"
        ).stdout

    assert made.spec.env == {"A": "1"}
    told = odd.replace("$$(A)", "$(A)")
    assert printed("ps", A="1") == f"{told}|p s|1 {Path.cwd()}\n"
    assert printed("worker", A="1", B="a b") == f"1a b||1 {tmp_path}\n"


def test_a_worker_that_is_always_started_again_is_done_when_it_succeeds(tmp_path: Path) -> None:
    """A TFJob whose workers always restart never ends, but a run ends when its workers succeed.
    This difference is reported for workers; for parameter servers it does not matter.
    """
    container = {"name": "tensorflow", "image": "a/b:1", "command": ["train"]}
    template = {"spec": {"containers": [container]}}
    both = {"restartPolicy": "Always", "template": template}
    (made,) = read(tmp_path, job(Worker=both, PS=both))

    told = [path for path in remarks_of(made) if path.endswith("restartPolicy")]
    assert told == ["spec.tfReplicaSpecs.Worker.restartPolicy"]
    assert made.spec.lifecycle.restarts == 6


@pytest.mark.parametrize(
    ("workers", "servers", "limit", "restarts", "heals", "told"),
    [
        ("OnFailure", "Never", None, 6, 3, "the run at most 6 times"),
        ("OnFailure", "OnFailure", 2, 2, 3, "a TFJob fails as soon as its last retry begins"),
        ("OnFailure", "OnFailure", 0, 0, 3, ""),
        ("OnFailure", "Never", 1000, 100, 3, "at most 100 times"),
        ("Never", "OnFailure", 4, 0, 3, "it is not retried, because the chief and the workers"),
        ("Never", "OnFailure", 4, 0, 3, "it has no effect: neither the chief nor the workers"),
        ("Never", "Never", 4, 0, 3, "it has no effect: neither the chief nor the workers"),
        ("Never", "Always", None, 0, 3, "a task that was killed or lost is started again"),
        ("ExitCode", "Never", 4, 0, 4, "a crash, too little memory and an exit code of 128"),
        ("ExitCode", "Never", None, 0, 3, "at most `heals` times; a crash"),
    ],
)
def test_workers_decide_whether_a_run_is_retried(
    tmp_path: Path,
    workers: str,
    servers: str,
    limit: int | None,
    restarts: int,
    heals: int,
    told: str,
) -> None:
    """If workers have no retries, the failure of a worker fails the run, whatever restart policy
    the parameter servers have. Each difference from a TFJob is reported.
    """
    template = worker()["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    both = (("Worker", workers), ("PS", servers))
    made = job(**{kind: {"restartPolicy": each, "template": template} for kind, each in both})
    made["spec"]["runPolicy"] = {} if limit is None else {"backoffLimit": limit}
    (found,) = read(tmp_path, made)

    assert (found.spec.lifecycle.restarts, found.spec.lifecycle.heals) == (restarts, heals)
    said = [r.why for r in found.remarks if r.path.endswith(("restartPolicy", "backoffLimit"))]
    assert [each for each in said if told in each] or (said, told) == ([], "")


@pytest.mark.parametrize("limit", [None, 0])
def test_a_limit_of_nothing_is_no_remark(tmp_path: Path, limit: int | None) -> None:
    """`backoffLimit: 0` or none, on a job without retries, causes no remark."""
    made = worker()
    made["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    made["spec"]["runPolicy"] = {} if limit is None else {"backoffLimit": limit}
    (found,) = read(tmp_path, made)
    assert [each for each in remarks_of(found) if each.endswith("backoffLimit")] == []


def test_a_variable_of_one_type_is_no_variable_of_the_others(tmp_path: Path) -> None:
    """A variable that hides the GPU of parameter servers does not hide the workers' GPUs."""
    container = {"name": "tensorflow", "image": "a/b:1", "command": ["train"]}
    hidden = {**container, "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": ""}]}
    types = {
        kind: {"template": {"spec": {"containers": [each]}}}
        for kind, each in (("PS", hidden), ("Worker", container))
    }
    (made,) = read(tmp_path, job(**types))

    assert made.spec.env == {}
    assert script_of(made).count("export CUDA_VISIBLE_DEVICES=''") == 1


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({**worker(), "kind": "PyTorchJob"}, "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE"),
        ({**worker(), "kind": "XGBoostJob"}, "a tracker at MASTER_ADDR"),
        ({**worker(), "kind": "MPIJob"}, "a launcher that starts its workers"),
        ({**worker(), "kind": "TrainJob"}, "TrainingRuntime"),
        ({**worker(), "apiVersion": "kubeflow.org/v1beta2"}, "only TFJobs of kubeflow.org/v1"),
        ({"kind": "Pod", "apiVersion": "v1"}, "there is no TFJob of kubeflow.org/v1 in it"),
        ({**worker(), "spec": 3}, "spec: got 3; expected an object"),
        ({**worker(), "spec": {}}, "name at least a Worker or a Chief"),
        (job(PS=worker()["spec"]["tfReplicaSpecs"]["Worker"]), "at least 1 worker"),
        (job(Worker={"replicas": -1, **worker()["spec"]["tfReplicaSpecs"]["Worker"]}), ">= 0"),
        (job(Worker={"replicas": "2"}), "use a whole number"),
        (job(Worker={"replicas": True}), "use a whole number"),
        (job(Server={}), "use one of Chief, Master, PS, Worker and Evaluator"),
        (
            job(**dict.fromkeys(("Chief", "Master"), worker()["spec"]["tfReplicaSpecs"]["Worker"])),
            "Chief is the same type",
        ),
        (job(Worker={}), "runs the container that is called tensorflow"),
        (worker(name="main"), "runs the container that is called tensorflow"),
        (worker(image=None), "name the image of the tasks"),
        (worker(image="a b"), "without spaces or 'https://'"),
        (worker(command=None), "`tfcluster import job.yaml -- python /opt/train.py`"),
        (worker(command=None, args=["python"]), "`-- env`"),
        (worker(command=["a", 1]), "command[1]: got 1; use text: put it into quotes"),
        (worker(command=["a\0b"]), "use text"),
        (worker(env=[{"name": "A", "value": 1}]), "use text: put it into quotes"),
        (worker(env={"A": 1}), "use a list"),
        (worker(volumeMounts=[{"name": "a", "mountPath": "/a"}]), "no volume of this name"),
        (
            job(Worker={"restartPolicy": "Maybe", **worker()["spec"]["tfReplicaSpecs"]["Worker"]}),
            "use one of Never, ExitCode, OnFailure, Always",
        ),
    ],
)
def test_what_cannot_become_a_tfcluster_is_refused(
    tmp_path: Path, manifest: dict[str, Any], said: str
) -> None:
    """Each refusal names the field and what is allowed."""
    with pytest.raises(InvalidRequest) as refused:
        read(tmp_path, manifest)
    assert said in str(refused.value)


def test_types_with_several_images_are_refused(tmp_path: Path) -> None:
    """Types with different images are refused, because the tasks of a run have one image."""
    types = {
        kind: worker(image=image)["spec"]["tfReplicaSpecs"]["Worker"]
        for kind, image in (("PS", "a/b:1"), ("Worker", "a/b:2"))
    }
    with pytest.raises(InvalidRequest, match="all tasks of a TFCluster use one image, here a/b:1"):
        read(tmp_path, job(**types))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: [", "it is not YAML: line"),
        (b"\xff\xfe\x00", "it is not text in UTF-8"),
        (b"a: " + b"[" * 5000, "nested too deeply"),
        (b"a: " + b"[" * 150 + b"]" * 150, "100 levels deep"),
        (b"- " * 3 + b"1", "each document of the file must be an object"),
        (b"!!python/object/apply:os.system [id]", "it is not YAML"),
        (b"? [a]\n: b", "it is not YAML"),
        (b"kind: TFJob\n" + b"#" * (1024 * 1024), "it has more than 1048576 bytes"),
        (
            b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + b"\n".join(
                b"%c: &%c [%s]" % (c, c, b",".join([b"*%c" % (c - 1)] * 10))
                for c in range(ord("b"), ord("h"))
            ),
            "at most 50000 values",
        ),
        (b"a: &a [*a]", "at most 50000 values"),
        (b"", "there is no TFJob"),
        (b"kind: TFJobList\nitems: 3", "there is no TFJob"),
    ],
)
def test_a_hostile_file_is_refused_in_words(run: Run, here: Path, text: bytes, said: str) -> None:
    """For any hostile file, the answer is one message and exit code 2."""
    (here / "job.yaml").write_bytes(text)
    done = run("import", "job.yaml")

    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


FIELDS = sorted(
    {
        key
        for name in MANIFESTS
        for key in re.findall(r"(\w+):", (JOBS / f"{name}.tfjob.yaml").read_text())
    }
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**20),
    st.floats(),
    st.sampled_from(["tensorflow", "a/b:1", "OnFailure", "1Gi", "/data", "$(A)", "A\n", "\0", ""]),
)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_value_anywhere_is_carried_over_named_or_refused(data: st.DataObject) -> None:
    """For any value in a field, the answer is a TFCluster or a refusal."""
    values = st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2),
            st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
        ),
        max_leaves=8,
    )
    name = data.draw(st.sampled_from(MANIFESTS))
    manifest = yaml.safe_load((JOBS / f"{name}.tfjob.yaml").read_text())
    at = manifest
    while isinstance(at, (dict, list)) and at:
        key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], (dict, list)) or data.draw(st.integers(0, 4)) == 0:
            at[key] = data.draw(values)
            break
        at = at[key]
    with (
        tempfile.NamedTemporaryFile("w", suffix=".yaml") as file,
        contextlib.suppress(InvalidRequest),
    ):
        yaml.safe_dump(manifest, file)
        file.flush()
        for made in read_tfjobs(file.name, COMMANDS.get(name, ()))[0]:
            assert (
                custom_resource.read(custom_resource.write(made.name, 1, made.spec)).spec
                == made.spec
            )


def test_a_file_that_is_not_there_is_named(run: Run) -> None:
    """The refusal of a missing file names the file, and no option of another command."""
    done = run("import", "none.yaml")
    assert done.code == 2
    said = "the import was refused: none.yaml: got 'none.yaml'; it cannot be read: No such file"
    assert said in done.err


def test_several_documents_and_lists_are_read_one_by_one(run: Run, here: Path) -> None:
    """Each job has its own name and remarks; other documents are named and not converted."""
    jobs = [worker(), {**worker(lifecycle={"preStop": {}}), "metadata": {"name": "other"}}]
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [jobs[1], claim]}
    (here / "jobs.yaml").write_text(yaml.safe_dump_all([jobs[0], None, listed]))
    done = run("import", "jobs.yaml")

    names = [each["metadata"]["name"] for each in yaml.safe_load_all(done.out)]
    assert names == ["digits-1", "other-1"]
    assert (
        "other: dropped: spec.tfReplicaSpecs.Worker.template.spec.containers[0].lifecycle (the"
        in done.err
    )
    assert (
        "PersistentVolumeClaim models: it is not part of the TFCluster; keep applying" in done.err
    )
    assert run("import", "jobs.yaml", "-o", "name").out.split() == ["digits", "other"]

    told = json.loads(run("import", "jobs.yaml", "-o", "json").out)
    assert [each["tfcluster"]["metadata"]["name"] for each in told["jobs"]] == names
    assert [each["path"] for each in told["jobs"][1]["notCarriedOver"] if each["needed"]] == [
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].lifecycle"
    ]
    assert [each["path"] for each in told["others"]] == ["PersistentVolumeClaim models"]
    assert "each with its own name" in run("import", "jobs.yaml", "--name", "x").err


def test_a_file_is_written_where_asked_and_read_from_standard_input(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-` reads standard input; `-o FILE` writes to a file instead of printing."""

    class Piped:
        buffer = io.BytesIO(yaml.safe_dump(worker(command=None)).encode())

    monkeypatch.setattr("sys.stdin", Piped())
    done = run("import", "-", "-o", "made.yaml", "--name", "mine", "--", "python", "/a.py")
    assert (done.code, done.out) == (0, "")
    made = yaml.safe_load((here / "made.yaml").read_text())
    assert made["metadata"]["name"] == "mine-1"

    (here / "job.yaml").write_text(yaml.safe_dump(worker()))
    missing = run("import", "job.yaml", "-o", "none/made.yaml")
    assert missing.code == 1
    assert "none/made.yaml cannot be written: No such file" in missing.err
    unused = run("import", "job.yaml", "--", "python", "/a.py")
    assert unused.code == 2
    assert "every container has its own command" in unused.err


def test_a_job_is_not_launched_when_its_program_may_miss_something(
    run: Run, here: Path, own_folders: Path
) -> None:
    """`import --launch` launches nothing if a field that the program may need was left out, and
    says how to continue. On this machine, it also refuses a job that names an image.
    """
    manifest = worker(command=["sh", "-c", "echo I am $TFCLUSTER_TASK; sleep $(NAP)"])
    container = manifest["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "NAP", "value": "0"}]
    (here / "job.yaml").write_text(yaml.safe_dump({**manifest, "status": {"a": 1}}))
    container["volumeDevices"] = [{"name": "a", "devicePath": "/dev/a"}]
    (here / "needy.yaml").write_text(yaml.safe_dump(manifest))

    refused = run("import", "needy.yaml", "--launch")
    assert refused.code == 2
    assert "containers[0].volumeDevices: got" in refused.err
    assert "`tfcluster launch -f FILE`" in refused.err
    assert left_behind(own_folders) == []
    both = run("import", "job.yaml", "--launch", "-o", "made.yaml")
    assert (both.code, (here / "made.yaml").exists()) == (2, False)
    here_not = run("import", "job.yaml", "--launch")
    assert here_not.code == 2
    assert "tasks run with a Python of this machine. Copy the program from" in here_not.err
    assert "`tfcluster launch --workers 1 train.py`" in here_not.err
    assert "digits: dropped: status: it is the state of the TFJob" in here_not.err
    assert left_behind(own_folders) == []
