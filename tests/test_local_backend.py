"""What only real processes can get wrong: signals, locks, ports, memory, devices, disks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tfcluster_magic.backends.base import LaunchRequest
from tfcluster_magic.backends.local import cgroups, memory, ports, processes
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.backends.local.store import RunFolder, Store
from tfcluster_magic.errors import BackendUnavailable, PreflightRefused, TFClusterError
from tfcluster_magic.models import (
    Cause,
    Lifecycle,
    Phase,
    Program,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    Stop,
    TaskExit,
    TaskType,
    TFCluster,
    to_json,
)

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
TELL_ENVIRONMENT = "import json, os\nprint(json.dumps(dict(os.environ)))\n"

Launch = Callable[..., TFCluster]
Wait = Callable[..., None]


@pytest.fixture
def backend() -> Iterator[LocalBackend]:
    """The local backend; what a test leaves is stopped."""
    made = LocalBackend()
    yield made
    for run in made.list():
        made.stop(run.metadata.name, Stop(reason="the test is over"))
    for run in made.list():
        over(made, run.metadata.name)


@pytest.fixture
def launch(backend: LocalBackend, program_of: Callable[..., Program]) -> Launch:
    """Launches a program's text with so many tasks."""

    def start(
        text: str, name: str = "digits", resources: Resources | None = None, **counts: int
    ) -> TFCluster:
        each = resources or Resources()
        replicas = {t: Replicas(count=n, resources=each) for t, n in counts.items()}
        limits = Lifecycle(grace=1.0)
        spec = Spec(program=program_of(text), replicas=ReplicaSet(**replicas), lifecycle=limits)
        return backend.create(LaunchRequest(cluster=name, spec=spec))

    return start


def over(backend: LocalBackend, ref: str) -> TFCluster:
    """The run when nothing of it is left."""
    for _ in backend.watch(ref):
        pass
    return backend.get(ref)


def folder_of(run: TFCluster) -> RunFolder:
    """Where the run lies on the disk."""
    return RunFolder(Path(run.status.paths["logs"]).parent)


def supervisor_of(run: TFCluster) -> int:
    """The pid of the run's supervisor."""
    mark = os.fsencode(folder_of(run).path)
    known = processes.snapshot()
    found = {pid for pid in known if {mark, b"-I"} <= {*_words(pid)}}
    # A child that is about to become a task is still a copy of it.
    (pid,) = [pid for pid in found if known[pid].parent not in found]
    return pid


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def tasks_of(run: TFCluster) -> list[int]:
    """Every process that the run's tasks are or have."""
    return processes.of_run(run.metadata.uid)


def is_up(backend: LocalBackend, tasks: int = 1) -> Callable[[], bool]:
    """Whether so many tasks have printed their first line."""
    return lambda: sum(1 for _ in backend.logs("digits")) == tasks


# -- the supervisor's life -------------------------------------------------------------------------


def test_a_killed_supervisor_takes_its_tasks_with_it(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """After `kill -9` of the supervisor no task is left, and nobody had to look for that."""
    text = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\n" + SLEEP
    run = launch(text, worker=2)
    wait_for(is_up(backend, 2))
    assert len(tasks_of(run)) == 6  # each worker's task.py, its program, and what that started
    os.kill(supervisor_of(run), signal.SIGKILL)
    wait_for(lambda: not tasks_of(run), within=5.0)


def test_a_killed_supervisor_is_told_by_whoever_looks_first(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """Readers that find a run without its supervisor end it, once, with a sentence to act on."""
    run = launch(SLEEP, worker=2)
    wait_for(is_up(backend, 2))
    os.kill(supervisor_of(run), signal.SIGKILL)
    readers = [LocalBackend() for _ in range(8)]
    with ThreadPoolExecutor(len(readers)) as pool:
        found = list(pool.map(lambda reader: over(reader, "digits"), readers))
    assert all(seen == found[0] for seen in found)
    status = found[0].status
    assert (status.phase, status.reason) == (Phase.FAILED, Reason.SUPERVISOR_LOST)
    assert "was killed" in status.message
    assert "tfcluster rerun digits-1" in status.message
    assert status.counts["worker"].failed == 2
    assert [e.reason for e in status.events].count(Reason.SUPERVISOR_LOST.value) == 1
    assert [line.text for line in backend.logs("digits") if line] == ["up", "up"]
    assert launch("pass", worker=1).metadata.run == 2


def test_a_stop_that_lost_its_supervisor_is_a_stop(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A run that was being stopped when its supervisor was killed is stopped."""
    text = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    run = launch(text, worker=1)
    wait_for(is_up(backend))
    backend.stop("digits", Stop())
    wait_for(lambda: backend.get("digits").status.phase is Phase.STOPPING)
    os.kill(supervisor_of(run), signal.SIGKILL)
    assert over(backend, "digits").status.phase is Phase.STOPPED


def test_a_reboot_is_told_as_one(backend: LocalBackend, launch: Launch, wait_for: Wait) -> None:
    """A run that an earlier boot of the machine left behind says that the machine was restarted."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    folder_of(run).lock_file.write_text("another boot")
    os.kill(supervisor_of(run), signal.SIGKILL)
    assert "machine was restarted" in over(backend, "digits").status.message


def test_sigterm_to_the_supervisor_is_a_stop(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A supervisor that is asked to end, as at a shutdown, stops its run in order."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    os.kill(supervisor_of(run), signal.SIGTERM)
    status = over(backend, "digits").status
    assert status.phase is Phase.STOPPED
    assert "SIGTERM" in status.message


def test_a_run_outlives_what_launched_it(
    backend: LocalBackend, program_of: Callable[..., Program], wait_for: Wait, tmp_path: Path
) -> None:
    """A run goes on when the whole session that launched it is killed."""
    spec = Spec(program=program_of(SLEEP), replicas=ReplicaSet(worker=Replicas(count=1)))
    (tmp_path / "spec.json").write_bytes(to_json(spec))
    text = f"""
import msgspec, sys, time
from tfcluster_magic.backends.base import LaunchRequest
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.models import Spec
spec = msgspec.json.decode(open({str(tmp_path / "spec.json")!r}, "rb").read(), type=Spec)
LocalBackend().create(LaunchRequest(cluster="digits", spec=spec))
print("launched", flush=True)
time.sleep(600)
"""
    kernel = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, start_new_session=True
    )
    with kernel:
        assert kernel.stdout is not None
        assert kernel.stdout.readline() == b"launched\n"
        os.killpg(kernel.pid, signal.SIGKILL)
    wait_for(is_up(backend))
    assert backend.get("digits").status.phase in (Phase.STARTING, Phase.RUNNING)


def test_a_starting_supervisor_is_not_taken_for_lost(backend: LocalBackend, launch: Launch) -> None:
    """Readers that look all the time while a run starts never see it lost."""
    seen: set[Reason] = set()
    done = threading.Event()

    def look() -> None:
        other = LocalBackend()
        while not done.is_set():
            seen.update(run.status.reason for run in other.list())

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(3):
        launch("pass", name=f"run{chr(97 + number)}", worker=1)
    for run in backend.list():
        over(backend, run.metadata.name)
    done.set()
    for reader in readers:
        reader.join()
    assert seen <= {Reason.QUEUED, Reason.STARTING, Reason.RUNNING, Reason.COMPLETED}
    assert Reason.COMPLETED in seen


def test_a_supervisor_that_cannot_start_is_told_with_its_last_words(
    backend: LocalBackend, launch: Launch, own_folders: Path
) -> None:
    """When the supervisor fails at once the launch says why, and nothing is left of it."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Its 60 ports are more than it can hold, while the launch itself has enough.
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, before[1]))
    try:
        with pytest.raises(BackendUnavailable, match="Too many open files"):
            launch(SLEEP, worker=60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert backend.list() == []
    assert [*(own_folders / "state" / "runs").glob("*")] == []
    assert [*(own_folders / "tfcluster" / "log").glob("*")] == []


def test_an_idle_supervisor_sleeps_and_is_small(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """While nothing happens a supervisor is never woken, and it stays below 30 MiB."""
    run = launch(SLEEP, worker=1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    pid = supervisor_of(run)
    wait_for(lambda: _asleep(pid))
    before = _wake_ups(pid)
    time.sleep(1.5)
    assert _wake_ups(pid) == before
    assert processes.pss([pid]) < 30 * 2**20


def _asleep(pid: int) -> bool:
    before = _wake_ups(pid)
    time.sleep(0.5)
    return _wake_ups(pid) == before


def _wake_ups(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("voluntary_ctxt_switches"))


# -- launches at once ------------------------------------------------------------------------------


def test_launches_at_once_never_share_a_name_or_a_port(
    backend: LocalBackend, program_of: Callable[..., Program]
) -> None:
    """Launches of one derived name from many threads get names, numbers and ports of their own."""
    spec = Spec(program=program_of(SLEEP), replicas=ReplicaSet(worker=Replicas(count=3)))
    request = LaunchRequest(cluster="digits", spec=spec, name_given=False)
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda _: LocalBackend().create(request), range(6)))
    assert len({run.metadata.name for run in runs}) == 6
    found = [address for run in runs for address in run.status.addresses["worker"]]
    assert len(set(found)) == 18


def test_one_given_name_launched_twice_at_once(
    backend: LocalBackend, program_of: Callable[..., Program], tmp_path: Path
) -> None:
    """Of several processes that launch one name at the same time exactly one succeeds."""
    spec = Spec(program=program_of(SLEEP), replicas=ReplicaSet(worker=Replicas(count=1)))
    (tmp_path / "spec.json").write_bytes(to_json(spec))
    text = f"""
import msgspec
from tfcluster_magic.backends.base import LaunchRequest
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import NameTaken
from tfcluster_magic.models import Spec
spec = msgspec.json.decode(open({str(tmp_path / "spec.json")!r}, "rb").read(), type=Spec)
try:
    LocalBackend().create(LaunchRequest(cluster="digits", spec=spec))
    print("launched")
except NameTaken:
    print("taken")
"""
    racers = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert sorted(racer.communicate()[0].strip() for racer in racers) == [
        "launched",
        *["taken"] * 3,
    ]
    assert len(backend.list()) == 1


def test_a_reserved_port_is_nobody_elses() -> None:
    """A reserved port is given to no other launch and no other program, but its task can use it."""
    first, held = ports.reserve({TaskType.WORKER: 200})
    second, more = ports.reserve({TaskType.WORKER: 200})
    try:
        assert not set(first["worker"]) & set(second["worker"])
        port = int(first["worker"][0].rpartition(":")[2])
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with socket.socket() as visitor, pytest.raises(ConnectionRefusedError):
            visitor.connect(("127.0.0.1", port))
        with socket.socket() as task, socket.socket() as visitor:
            task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            task.bind(("127.0.0.1", port))
            task.listen()
            visitor.connect(("127.0.0.1", port))
    finally:
        for bound in held + more:
            bound.close()


def test_two_launches_cannot_both_take_the_last_memory(
    backend: LocalBackend, program_of: Callable[..., Program]
) -> None:
    """Of launches that each need more than half of the free memory only one goes through."""
    most = Resources(memory=str(int(backend.options().memory.free * 0.6)))
    replicas = ReplicaSet(worker=Replicas(count=1, resources=most))
    spec = Spec(program=program_of(SLEEP), replicas=replicas)

    def attempt(name: str) -> str:
        try:
            LocalBackend().create(LaunchRequest(cluster=name, spec=spec))
        except PreflightRefused as refused:
            return "refused" if "is free" in str(refused) else str(refused)
        return "launched"

    with ThreadPoolExecutor(3) as pool:
        found = sorted(pool.map(attempt, ["one", "two", "three"]))
    assert found == ["launched", "refused", "refused"]


# -- what a task is given --------------------------------------------------------------------------


def test_the_notebook_servers_secrets_stay_away(
    backend: LocalBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch, wait_for: Wait
) -> None:
    """No process of a run has the notebook server's credentials, or another run's identity."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "token-of-the-hub")
    monkeypatch.setenv("JPY_API_TOKEN", "token-of-the-hub")
    monkeypatch.setenv("TFCLUSTER_RUN_UID", "another")
    monkeypatch.setenv("KEPT", "yes")
    run = launch(TELL_ENVIRONMENT + SLEEP, worker=1)
    wait_for(is_up(backend, 2))
    line = next(line for line in backend.logs("digits") if line)
    told = json.loads(line.text)
    assert told["KEPT"] == "yes"
    assert told["TFCLUSTER_RUN_UID"] == run.metadata.uid
    assert "token-of-the-hub" not in told.values()
    for pid in (supervisor_of(run), *tasks_of(run)):
        variables = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"token-of-the-hub" not in variables
        assert b"TFCLUSTER_RUN_UID=another" not in variables


def test_what_a_task_leaves_behind_goes_with_the_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait, tmp_path: Path
) -> None:
    """A daemon that a program makes, without its environment even, does not outlive the run."""
    pid_file = tmp_path / "pid"
    run = launch(
        f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(pid_file)!r}, "w").write(str(os.getpid()))
        os.execve("/bin/sleep", ["sleep", "600"], {{}})
    os._exit(0)
""",
        worker=1,
    )
    assert over(backend, "digits").status.phase is Phase.SUCCEEDED
    assert tasks_of(run) == []
    if pid_file.exists():
        assert not Path("/proc", pid_file.read_text()).exists()


def test_a_killed_task_runner_is_healed(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """When even a task's runner is killed, its program is gone and the task is started again."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    (runner,) = [pid for pid in tasks_of(run) if b"-E" in _words(pid)]
    os.kill(runner, signal.SIGKILL)
    wait_for(is_up(backend, 2))
    assert backend.get("digits").status.heals == 1
    assert len(tasks_of(run)) == 2


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_by", ["kernel", "watching"])
def test_a_memory_limit_is_kept(kept_by: str, tmp_path: Path) -> None:
    """Above its limit a task is ended by the kernel where we may ask it, else by watching it."""
    parent = cgroups.find() if kept_by == "kernel" else None
    limit = 150 * 2**20
    guard = memory.MemoryGuard("uid-of-test", {"worker-0": limit}, parent)
    members = guard.admit("worker-0")
    assert (members is None) == (parent is None)
    join = f"open({str(members)!r}, 'w').write(str(os.getpid()))" if members else "pass"
    eat = "import os; b = os.urandom(1 << 20) * 300; print('ate', flush=True); input()"
    text = f"import os, subprocess, sys; {join}\nsubprocess.run([sys.executable, '-c', {eat!r}])"
    runner = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with runner:
        assert runner.stdout is not None
        if parent is None:
            assert guard.watched(["worker-0"]) == ["worker-0"]
            assert runner.stdout.readline() == b"ate\n"
            guard.look({"worker-0": runner.pid})
        assert runner.wait(20) == 0, "the one that starts the program tells how it ended"
    killed = TaskExit(cause=Cause.KILLED, finished_at=1.0, signal=9)
    told = guard.explain("worker-0", killed)
    guard.close()
    assert told.cause is Cause.OOM
    assert told.detail.startswith("limit 150Mi, used ")
    if parent is not None:
        assert [*parent.path.glob("tfcluster-uid-of-test*")] == []


def test_a_task_within_its_limit_is_left_alone() -> None:
    """Watching ends nobody that stays below the limit, and blames no other end on memory."""
    guard = memory.MemoryGuard("uid-of-test", {"worker-0": 2**30}, None)
    guard.admit("worker-0")
    guard.look({"worker-0": os.getpid()})
    killed = TaskExit(cause=Cause.KILLED, finished_at=1.0, signal=9)
    assert guard.explain("worker-0", killed) == killed


def test_no_control_group_outlives_its_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """After a run with memory limits, even one that lost its supervisor, its groups are gone."""
    groups = cgroups.find()
    for end in (signal.SIGTERM, signal.SIGKILL):
        run = launch(SLEEP, worker=1, resources=Resources(memory="512Mi"))
        wait_for(is_up(backend))
        made = [*groups.path.glob(f"tfcluster-{run.metadata.uid}*")] if groups else []
        assert len(made) == (1 if groups else 0)
        os.kill(supervisor_of(run), end)
        over(backend, "digits")
        assert not any(group.exists() for group in made)


# -- GPUs ------------------------------------------------------------------------------------------


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that lists two devices."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nprintf '0, GPU-aaaa\\n1, GPU-bbbb\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


def devices_of(backend: LocalBackend, ref: str) -> dict[str, str]:
    """What each task of a run sees of the machine's devices."""
    told = [line for line in backend.logs(ref) if line]
    return {line.task: json.loads(line.text).get("CUDA_VISIBLE_DEVICES", "all") for line in told}


def test_each_task_gets_devices_of_its_own(
    backend: LocalBackend, launch: Launch, two_gpus: None, program_of: Callable[..., Program]
) -> None:
    """A task sees the GPUs that it asked for; one that asked for none sees none."""
    assert backend.options().gpu.total == 2
    replicas = ReplicaSet(
        worker=Replicas(count=2, resources=Resources(gpu=1)), chief=Replicas(count=1)
    )
    spec = Spec(program=program_of(TELL_ENVIRONMENT), replicas=replicas)
    backend.create(LaunchRequest(cluster="digits", spec=spec))
    over(backend, "digits")
    assert devices_of(backend, "digits") == {
        "chief-0": "-1",
        "worker-0": "GPU-aaaa",
        "worker-1": "GPU-bbbb",
    }


def test_devices_are_held_until_the_run_is_over(
    backend: LocalBackend, launch: Launch, two_gpus: None
) -> None:
    """No two running clusters share a GPU, and the refusal says how many there are."""
    launch(SLEEP, worker=1, resources=Resources(gpu=1))
    assert backend.options().gpu.free == 1
    with pytest.raises(
        PreflightRefused, match=r"1 worker of 1 GPU fits, 2 were asked: .*--workers 1"
    ):
        launch(SLEEP, name="other", worker=2, resources=Resources(gpu=1))
    launch(TELL_ENVIRONMENT, name="other", worker=1, resources=Resources(gpu=1))
    over(backend, "other")
    assert devices_of(backend, "other") == {"worker-0": "GPU-bbbb"}
    backend.stop("digits", Stop())
    over(backend, "digits")
    assert backend.options().gpu.free == 2


def test_only_the_devices_of_the_launcher_are_given(
    backend: LocalBackend, two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the admin left this user one GPU, one GPU is all there is."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert backend.options().gpu.total == 1


def test_a_machine_without_gpus(backend: LocalBackend, launch: Launch) -> None:
    """Without GPUs the variable is left alone, and asking for one says that there is none."""
    with pytest.raises(PreflightRefused, match="no GPU"):
        launch(SLEEP, worker=1, resources=Resources(gpu=1))
    launch(TELL_ENVIRONMENT, worker=1)
    over(backend, "digits")
    assert devices_of(backend, "digits") == {"worker-0": "all"}


def test_an_ended_run_keeps_only_what_its_parameter_servers_hold(
    backend: LocalBackend, two_gpus: None, program_of: Callable[..., Program]
) -> None:
    """While parameter servers wait for their reclaim, what the workers had can be had again."""
    text = "import os, time\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'ps': time.sleep(600)\n"
    each = Resources(gpu=1, memory="1Gi")
    replicas = ReplicaSet(
        worker=Replicas(count=1, resources=each), ps=Replicas(count=1, resources=each)
    )
    limits = Lifecycle(reclaim_after=600.0)
    spec = Spec(program=program_of(text), replicas=replicas, lifecycle=limits)
    backend.create(LaunchRequest(cluster="digits", spec=spec))
    assert backend.options().gpu.free == 0
    for run in backend.watch("digits"):
        if run is not None and run.status.phase is Phase.SUCCEEDED:
            break
    there = backend.options()
    assert there.gpu.free == 1
    assert there.memory.free <= there.memory.total - 2**30


# -- disks -----------------------------------------------------------------------------------------


def test_a_status_that_cannot_be_written_is_written_later(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """While the state folder cannot be written a run goes on; what happened is told afterwards."""
    run = launch("import time; time.sleep(1)", worker=1)
    folder = folder_of(run)
    # What the status is written to first: this stops the writing whoever tries, root included.
    in_the_way = folder.path / f".status.json.{supervisor_of(run)}"
    wait_for(lambda: _made(in_the_way))
    wait_for(lambda: not tasks_of(run))
    wait_for(lambda: b"cannot write the status" in folder.supervisor_log.read_bytes())
    assert not backend.get("digits").status.phase.is_final
    in_the_way.rmdir()
    assert over(backend, "digits").status.phase is Phase.SUCCEEDED


def test_the_end_of_a_task_is_known_without_its_termination_message(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """How a task ended is known even where it could not leave its message, as on a full disk."""
    text = """
import os, signal, time
print("up", flush=True)
time.sleep(1)
if os.environ["TFCLUSTER_ATTEMPT"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    run = launch(text, worker=1)
    wait_for(is_up(backend))
    (folder_of(run).tasks / "worker-0.exit.json").mkdir()
    status = over(backend, "digits").status
    assert status.phase is Phase.SUCCEEDED
    assert "worker-0 was killed from outside (SIGKILL)" in status.events[-2].message


def _made(folder: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        return False  # it is being written just now
    return True


def test_a_stop_that_cannot_be_written_is_told_directly(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A full disk does not keep anybody from stopping a run."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    (folder_of(run).path / f".stop.json.{os.getpid()}").mkdir()
    backend.stop("digits", Stop(reason="the disk is full"))
    status = over(backend, "digits").status
    assert status.phase is Phase.STOPPED
    assert "the disk is full" in status.message


def test_a_record_that_is_removed_by_hand_ends_its_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A run whose folder somebody removed does not go on where nobody can see it."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    store = Store(backend.state_dir)
    pid = supervisor_of(run)
    store.remove(folder_of(run))
    wait_for(lambda: not tasks_of(run) and not _words(pid))


def test_a_log_folder_that_cannot_be_made(
    launch: Launch, backend: LocalBackend, own_folders: Path
) -> None:
    """Where the log folder cannot be, the launch is refused with its name, and leaves nothing."""
    (own_folders / "tfcluster").mkdir(exist_ok=True)
    (own_folders / "tfcluster" / "log").write_text("in the way")
    with pytest.raises(PreflightRefused, match=r"is not a folder.*TFCLUSTER_LOG_DIR"):
        launch(SLEEP, worker=1)
    assert backend.list() == []
    assert [*(own_folders / "state" / "runs").glob("*")] == []


def test_a_state_folder_that_cannot_be_made(launch: Launch, own_folders: Path) -> None:
    """Where the state folder cannot be, the launch says so and what to do."""
    (own_folders / "state").write_text("in the way")
    with pytest.raises(TFClusterError, match="TFCLUSTER_STATE_DIR"):
        launch(SLEEP, worker=1)


def test_logs_are_found_in_the_output_folder(backend: LocalBackend, launch: Launch) -> None:
    """When the state's own log is gone, the copy beside the checkpoints is shown."""
    run = launch("print('hello')", worker=1)
    over(backend, "digits")
    (folder_of(run).tasks / "worker-0.log").unlink()
    assert [line.text for line in backend.logs("digits") if line] == ["hello"]


def test_a_record_of_rubbish_hides_nothing_else(backend: LocalBackend, launch: Launch) -> None:
    """Files that are no records of ours are passed over by every verb."""
    run = launch("pass", worker=1)
    over(backend, "digits")
    runs = backend.state_dir / "runs"
    (runs / "half" / "1").mkdir(parents=True)
    (runs / "newer" / "1").mkdir(parents=True)
    (runs / "newer" / "1" / "record.json").write_text('{"metadata": {}, "soul": 1}')
    (runs / "digits" / "notes.txt").write_text("mine")
    (runs / "file").write_text("mine")
    folder_of(run).status_file.write_text("{")
    found = backend.list()
    assert [cluster.metadata.name for cluster in found] == ["digits-1"]
    assert found[0].status.reason is Reason.SUPERVISOR_LOST
    assert isinstance(found[0].status, Status)
    assert launch("pass", worker=1).metadata.run == 2


def test_a_list_of_fifty_runs_is_quick_to_read(backend: LocalBackend, launch: Launch) -> None:
    """Ended runs cost a list their files and no more: no lock is taken and no process looked at."""
    run = launch("pass", worker=1)
    over(backend, "digits")
    record = folder_of(run).record_file.read_bytes()
    status = folder_of(run).status_file.read_bytes()
    for number in range(2, 51):
        folder = Store(backend.state_dir).folder("digits", number)
        folder.path.mkdir(parents=True)
        folder.record_file.write_bytes(record)
        folder.status_file.write_bytes(status)
    assert len(backend.list()) == 50
    assert not any(Store(backend.state_dir).folder("digits", 50).path.glob("lock"))


def test_resuming_from_what_is_gone(
    backend: LocalBackend, program_of: Callable[..., Program]
) -> None:
    """A run can resume from the folder of another whose record is gone, but not from nothing."""
    spec = Spec(
        program=program_of("import os\nprint(os.environ['TFCLUSTER_RESUME_FROM'])\n"),
        replicas=ReplicaSet(worker=Replicas(count=1)),
        resume_from="digits-1",
    )
    with pytest.raises(PreflightRefused, match="digits-1"):
        backend.create(LaunchRequest(cluster="digits", spec=spec))
    (backend.log_dir / "digits" / "1").mkdir(parents=True)
    assert backend.create(LaunchRequest(cluster="digits", spec=spec)).metadata.run == 2
    over(backend, "digits")
    told = [line.text for line in backend.logs("digits") if line]
    assert told[-1] == str(backend.log_dir / "digits" / "1")
