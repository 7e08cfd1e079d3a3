"""A run's objects in Kubernetes: compared with golden files, and rules for all runs."""

from __future__ import annotations

import base64
import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace
from support.golden_runs import (
    BETWEEN_GRAPH,
    EVERYTHING,
    FOLDER,
    LARGE,
    NAMESPACE,
    RUNS,
    golden,
    inline,
    made,
    run,
)
from support.project import ROOT
from support.task_process import RUNTIME

from tfcluster_magic.errors import InvalidRequest, TFClusterError
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.objects import pod_template, run_objects
from tfcluster_magic.kube.objects.policy import Policy, parse_policy
from tfcluster_magic.spec import Pods, Replicas, ReplicaSet, Spec, TaskType
from tfcluster_magic.spec.spec import Volume

Object = dict[str, Any]


@pytest.fixture(params=RUNS)
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of a golden file."""
    chosen: str = request.param
    return chosen


def pods_of(found: list[Object]) -> Iterator[Object]:
    """Yield the pod specs of a run's Jobs."""
    for each in found:
        if each["kind"] == "Job":
            yield each["spec"]["template"]["spec"]


def test_objects_are_those_of_the_golden_file(name: str, pytestconfig: pytest.Config) -> None:
    """The objects of a run are equal to its reviewed golden file."""
    file = FOLDER / f"{name}.yaml"
    text = golden(made(*RUNS[name]))
    if pytestconfig.getoption("--rewrite"):
        file.write_text(text)
    assert text == file.read_text(), "read the difference; --rewrite accepts it"


def test_the_run_with_everything_has_all_options_of_pods() -> None:
    """Each option of pods is in a golden file, so that a change of its objects is seen."""
    missing = [
        name
        for name in Pods.__struct_fields__
        if getattr(EVERYTHING.pods, name) == getattr(Pods(), name)
    ]
    assert not missing, f"give EVERYTHING in tests/support/golden_runs.py a value for {missing}"


def test_admission_knows_every_label(name: str) -> None:
    """The admission policy against a stolen operator token allows the labels of the run's Jobs and
    pods.
    """
    (keys,) = [
        set(yaml.safe_load(variable["expression"]))
        for policy in yaml.safe_load_all((ROOT / "k8s/base/admission-operator.yaml").read_text())
        for variable in policy["spec"].get("variables", ())
        if variable["name"] == "keys"
    ]
    for each in made(*RUNS[name]):
        if each["kind"] == "Job":
            marks = each["metadata"]["labels"]
            assert marks.keys() == keys
            assert each["spec"]["template"]["metadata"]["labels"].items() <= marks.items()


def test_every_golden_file_is_of_a_run() -> None:
    """Every golden file belongs to a run in the tests."""
    assert {file.stem for file in FOLDER.iterdir()} == RUNS.keys()


def test_a_run_has_at_most_nine_objects(name: str) -> None:
    """A run of any size has at most nine objects besides its pods."""
    found = made(*RUNS[name])
    assert len(found) <= 9
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)


def test_the_tfcluster_owns_all_but_the_parameter_servers(name: str) -> None:
    """The TFCluster owns all objects of its run except the Job of parameter servers, which is owned
    by the Jobs of the tasks that they serve.
    """
    for each in made(*RUNS[name]):
        owners = each["metadata"]["ownerReferences"]
        ps = each["metadata"]["name"].endswith("-ps")
        assert {owner["kind"] for owner in owners} == {"Job" if ps else "TFCluster"}
        assert [owner["controller"] for owner in owners] == [True, False][: len(owners)]
        assert not any(owner["blockOwnerDeletion"] for owner in owners)
        assert each["metadata"]["namespace"] == NAMESPACE


def test_parameter_servers_stay_as_long_as_anybody_whom_they_serve(name: str) -> None:
    """The Jobs of workers and chief have a TTL, and all of them own the parameter servers' Job:
    otherwise that Job would be deleted an hour after the workers' success while the chief still
    trains.
    """
    jobs = [each for each in made(*RUNS[name]) if each["kind"] == "Job"]
    mains = {job["metadata"]["name"] for job in jobs if "ttlSecondsAfterFinished" in job["spec"]}
    assert {each.rpartition("-")[2] for each in mains} <= {"worker", "chief"}
    for job in jobs:
        if job["metadata"]["name"].endswith("-ps"):
            assert {each["name"] for each in job["metadata"]["ownerReferences"]} == mains


def test_the_chief_takes_the_parameter_servers_with_it() -> None:
    """If a chief is the only trainer, its Job has the TTL and owns the parameter servers."""
    one = Replicas(count=1)
    replicas = ReplicaSet(chief=one, ps=one, worker=Replicas(count=0))
    jobs = {
        each["metadata"]["name"]: each
        for each in made(run(msgspec.structs.replace(BETWEEN_GRAPH, replicas=replicas)), Policy())
        if each["kind"] == "Job"
    }
    assert jobs["digits-2-chief"]["spec"]["ttlSecondsAfterFinished"] == 3600
    assert jobs["digits-2-ps"]["metadata"]["ownerReferences"][0]["name"] == "digits-2-chief"


def test_pods_are_restricted(name: str) -> None:
    """Every pod satisfies Pod Security "restricted", and has no token of the cluster."""
    for spec in pods_of(made(*RUNS[name])):
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "initContainers"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        kinds = {kind for volume in spec["volumes"] for kind in volume.keys() - {"name"}}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
        mounted = [mount["name"] for mount in container["volumeMounts"]]
        assert set(mounted) == {volume["name"] for volume in spec["volumes"]}


def test_names_fit_where_they_are_used() -> None:
    """Even with the longest name and the largest count, host names are short enough for DNS."""
    spec = Spec(replicas=ReplicaSet(evaluator=Replicas(count=1000), worker=Replicas(count=1)))
    longest = "a" * 40
    found = made(
        run(msgspec.structs.replace(spec, program=BETWEEN_GRAPH.program), longest, 99999), Policy()
    )
    hosts = [f"{each['metadata']['name']}-999" for each in found if each["kind"] == "Job"]
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", host) for host in hosts)


def test_claims_with_any_name_can_be_mounted() -> None:
    """Claims can be mounted even if their names have dots, or are longer than the name of a volume
    may be.
    """
    for spec in pods_of(made(*RUNS["everything"])):
        names = [volume["name"] for volume in spec["volumes"]]
        assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", each) for each in names)
        claims = [
            v["persistentVolumeClaim"]["claimName"]
            for v in spec["volumes"]
            if "persistentVolumeClaim" in v
        ]
        assert {"corpus", "team.share", "log", "workspace", "everything-it-can-2-data"} == {*claims}
        assert len(claims) == 5


def test_shared_data_is_in_every_task_and_read_only() -> None:
    """A namespace's shared data is mounted in every task, read-only in the volume and in the mount,
    unless the run's spec mounts it differently.
    """
    shared = [{"claim": "images", "path": "/mnt/images"}, {"claim": "texts", "path": "/mnt/texts"}]
    policy = parse_policy(f"sharedData: {shared}")
    own = Pods(volumes=(Volume(claim="mine", path="/mnt/texts"),))
    for spec in (BETWEEN_GRAPH, replace(BETWEEN_GRAPH, pods=own)):
        every = list(pods_of(made(run(spec), policy)))
        assert len(every) == 2
        for each in every:
            mounts = {m["mountPath"]: m for m in each["containers"][0]["volumeMounts"]}
            claims = {
                v["name"]: v["persistentVolumeClaim"]
                for v in each["volumes"]
                if "persistentVolumeClaim" in v
            }
            assert mounts["/mnt/images"]["readOnly"]
            assert claims[mounts["/mnt/images"]["name"]] == {
                "claimName": "images",
                "readOnly": True,
            }
            texts = claims[mounts["/mnt/texts"]["name"]]["claimName"]
            assert texts == ("texts" if spec is BETWEEN_GRAPH else "mine")


def test_without_claims_the_output_goes_with_the_pod() -> None:
    """Without a log claim, a task can still write output, up to a limit, so that no object of a run
    can fill a node's disk.
    """
    policy = Policy(log_claim="", data_claim="", log_size="2Gi")
    (spec, *_) = pods_of(made(run(BETWEEN_GRAPH), policy))
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert "/data" not in mounts
    assert {"name": mounts["/log"], "emptyDir": {"sizeLimit": "2Gi"}} in spec["volumes"]
    shipped = [each.read_text() for each in (ROOT / "k8s").rglob("*.yaml")]
    assert sum("emptyDir: {sizeLimit: " in text for text in shipped) == 3
    assert not [text for text in shipped if "emptyDir: {}" in text]


@pytest.mark.parametrize(
    "text", ["", "a: {b: [c", "x\ny: z", "{{ 7*7 }}", "\u2028\x7f\x85\ufeff", "'\"\\\n"]
)
def test_no_value_becomes_structure(text: str) -> None:
    """A text that a user writes into a spec becomes a value in the objects, and changes nothing
    else in them.
    """
    spec = msgspec.structs.replace(
        EVERYTHING,
        env={"X": text},
        image=text,
        pods=msgspec.structs.replace(EVERYTHING.pods, annotations={"x": text}),
    )
    found = made(run(spec, "everything-it-can"), Policy())
    assert msgspec.json.decode(found[0]["data"]["task.json"])["env"] == {"X": text}
    for each in found:
        if each["kind"] == "Job":
            template = each["spec"]["template"]
            assert template["metadata"]["annotations"] == {"x": text}
            assert template["spec"]["containers"][0]["image"] == (text or Policy().default_image)


def test_tasks_find_one_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses and the output folder that the runtime computes from task.json are those in the
    run's objects. So are the tasks that open a port.
    """
    monkeypatch.syspath_prepend(str(RUNTIME))
    from task_config import TaskConfig

    cluster, policy = RUNS[name]
    described = msgspec.json.decode(made(cluster, policy)[0]["data"]["task.json"])
    head = cluster.metadata
    for task_type, count in cluster.spec.replicas.counts.items():
        config = TaskConfig(described, f"{task_type.value}-{count - 1}")
        hosts = [labels.host_name(head.name, task_type, index) for index in range(count)]
        assert config.addresses[task_type.value] == [f"{host}:{labels.PORT}" for host in hosts]
        assert config.opens_port == pod_template.opens_port(cluster, task_type)
        assert config.output_dir == f"/log/{head.cluster}/{head.run}"


def test_a_resumed_run_knows_the_old_folder() -> None:
    """A run that resumes an earlier run reads the checkpoints in the earlier run's folder on the
    log volume.
    """
    described = msgspec.json.decode(made(*RUNS["collective"])[0]["data"]["task.json"])
    assert described["resumeFrom"] == "/log/digits/1"


def test_a_program_arrives_with_its_modes() -> None:
    """Every file of a small program is in the ConfigMap, text or not, executable or not."""
    head, *others = made(*RUNS["everything"])
    content = {**head["data"], **head["binaryData"]}
    files_of = next(pods_of(others))["volumes"][0]["configMap"]["items"]
    items = {item["path"]: item for item in files_of}
    assert content.keys() == {item["key"] for item in files_of}
    assert items["program/train"]["mode"] == 0o555
    assert "mode" not in items["program/my data.csv"]
    assert content[items["program/my data.csv"]["key"]] == "1,2\n"
    assert content[items["program/train"]["key"]] == "f0VMRgD/"


def test_a_later_run_of_the_same_name_has_files_of_its_own() -> None:
    """The ConfigMap of a run, which is immutable, has a name that no other run ever has."""
    names = set()
    for uid in ("0f5a54d6-5d4c-4dfd-9c8c-8f3c1a0d1c11", "7e1b90aa-5d4c-4dfd-9c8c-8f3c1a0d1c11"):
        cluster = run(BETWEEN_GRAPH)
        cluster = replace(cluster, metadata=replace(cluster.metadata, uid=uid))
        head, *others = run_objects.objects_of_run(cluster, Policy(), namespace=NAMESPACE)
        assert head["immutable"]
        used = {pods["volumes"][0]["configMap"]["name"] for pods in pods_of(others)}
        assert used == {head["metadata"]["name"]}
        names |= used
    assert len(names) == 2


def test_files_that_do_not_fit_are_refused() -> None:
    """A program too large for a ConfigMap is refused with its size, and nothing is created."""
    spec = msgspec.structs.replace(BETWEEN_GRAPH, env={"X": "x" * (1 << 20)})
    with pytest.raises(InvalidRequest, match=r"spec\.env: got 1; the files of a run may be 1Mi"):
        run_objects.objects_of_run(run(spec), Policy(), namespace=NAMESPACE)


def test_a_large_program_needs_a_workspace() -> None:
    """Without a workspace in tasks, a program above 64 KiB is refused, and the limit is named."""
    with pytest.raises(InvalidRequest, match="keep it below 64Ki"):
        made(run(LARGE), Policy(workspace_claim=""))


def test_an_altered_program_is_refused() -> None:
    """A program that does not match its checksum is refused before it reaches a pod."""
    altered = msgspec.structs.replace(inline({"train.py": b"print(1)\n"}), sha256="0" * 64)
    with pytest.raises(TFClusterError, match="was altered"):
        made(run(msgspec.structs.replace(BETWEEN_GRAPH, program=altered)), Policy())


def test_what_has_no_limit_asks_for_the_default() -> None:
    """A task without requests requests the policy's cores, and is limited only in memory."""
    bare = Spec(replicas=ReplicaSet(worker=Replicas(count=1)))
    asked, limits = pod_template.task_resources(bare, Policy(default_cpu=0.1), TaskType.WORKER)
    assert asked == {"cpu": "100m", "memory": "1Gi"}
    assert limits == {"memory": "1Gi"}
    wished, limited = pod_template.task_resources(EVERYTHING, Policy(), TaskType.WORKER)
    assert limited == {"memory": "4Gi", "nvidia.com/gpu": "2"}
    assert wished == {"cpu": "500m", **limited}


def test_the_runtime_is_whole() -> None:
    """The ConfigMap has every source file of the runtime, and no generated file."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(pod_template.runtime_archive()))) as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == {
            path.relative_to(RUNTIME).as_posix(): path.read_bytes()
            for path in RUNTIME.rglob("*.py")
        }
        assert "site/sitecustomize.py" in packed.namelist()
