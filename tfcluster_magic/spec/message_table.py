"""Messages as codes and values, in the form that a record holds, and the table with the text of
each code.

Each view renders the sentence in its reader's language (`str(message)`). The reference of reasons
in docs/ and the table of the JupyterLab extension are generated from here. A code never changes its
meaning, because programs may act on it.

    str(Message("TasksFinished", {"tasks": ["worker-0"]}))  # "worker-0 finished"

In a text, `{name}` stands for a value, and `{name:format}` for a value in one of the `FORMATS`. If
a text has two forms, singular and plural, the value `count` selects one.
"""

from __future__ import annotations

import string
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from ..i18n import _, mark, mark_plural, ngettext
from .spec import Model


class Message(Model, frozen=True):
    """A sentence or a clause as the code of its text and the values in it.

    The texts of all codes are in docs/reference/messages.md. A value is a name, a number, a message
    that is part of this one, or a list of names or of messages.
    """

    code: Annotated[str, Meta(description="the code of the text, from docs/reference/messages.md")]
    params: Annotated[
        Mapping[str, str | int | float | Sequence[str | Message] | Message],
        Meta(description="the values in the text, by name"),
    ] = {}

    def __str__(self) -> str:
        """Return the text in the current language.

        Raises:
            LookupError: the code is unknown or a value is missing, because a newer version wrote
                the message.
        """
        form = TEXTS[self.code]
        form = (
            ngettext(*form, _number(self.params["count"])) if isinstance(form, tuple) else _(form)
        )
        return _RENDERER.vformat(form, (), self.params)


Clause = Message | str
"""A message, or text from elsewhere that is shown as it is."""


def _number(count: object) -> float:
    return count if isinstance(count, int | float) else 0


# ---- formats of values ----


def format_duration(seconds: float) -> str:
    """Return a short duration as text: 5400 gives "1h 30m", 0.25 gives "0.2s"."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def _joined(separator: str) -> Callable[[Any], str]:
    """Return a format that joins a list by a translated separator, and returns any other value as
    text.
    """
    return lambda value: (
        _(separator).join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    )


SEPARATORS: Mapping[str, str] = {
    "and": mark(" and "),
    "clauses": mark("; "),
    "commas": mark(", "),
    "lines": "\n  - ",
    "or": mark(" or "),
    "sentences": mark(". "),
}
"""The separator between the parts of a list, by the name of the format."""
FULL_STOP = mark(".")

FORMATS: Mapping[str, Callable[[Any], str]] = {
    **{name: _joined(separator) for name, separator in SEPARATORS.items()},
    "clock": lambda seconds: time.strftime("%H:%M", time.localtime(seconds)),
    "duration": format_duration,
    "g": lambda number: f"{number:g}",
    "quoted": lambda words: f"'{words}'",
}
"""The formats of values in a text, such as `{time:duration}`. The format of a list is named after
its separator.
"""


class _Renderer(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """Return one value in the format that the text specifies."""
        made = FORMATS.get(format_spec)
        return str(value) if made is None else made(value)


_RENDERER = _Renderer()

# ---- the texts ----

Text = str | tuple[str, str]

GROUPS: Mapping[str, Mapping[str, Text]] = {
    "Parts of other messages": {
        "AndMore": mark("{names:commas} and {count} more"),
        "Clauses": "{parts:clauses}",
        "Saying": mark(": {words}"),
        "SayingAt": mark(": {words} ({file}, line {line})"),
        "CausedBy": mark("{said}, caused by {error}"),
        "InBrackets": mark(" ({detail})"),
        "UseOptions": mark(": use {options}"),
        "Times": mark_plural("{count} time", "{count} times"),
        "Tasks": mark_plural("{count} task", "{count} tasks"),
        "Workers": mark_plural("{count} worker", "{count} workers"),
        "ParameterServers": mark_plural("{count} parameter server", "{count} parameter servers"),
        "Owner": mark("its owner"),
        "Room": mark("room"),
        "None": mark("none"),
    },
    "Where a run is, and why": {
        "Queued": mark("Waiting for {what}."),
        "ChecksRoom": mark("Checking whether there is room."),
        "RunToSucceed": mark("{run} to succeed"),
        "RunToEnd": mark("{run} to end"),
        "AllOf": "{parts:and}",
        "NoSuchRunYet": mark("{what} (there is no run {runs:commas} yet)"),
        "AwaitedFailed": mark("{run} failed, so this run did not start."),
        "AwaitedStopped": mark("{run} was stopped, so this run did not start."),
        "AwaitedDeleted": mark(
            "{run} was deleted before it was seen to succeed or end, so this run did not start."
        ),
        "AwaitedMissing": mark(
            "There was no run {run} for {time:duration}, so this run did not start."
        ),
        "AwaitedCircle": mark(
            "These runs wait for each other, so none of them can start: {runs:commas}."
        ),
        "StartWithoutWaiting": mark("To start it without waiting: `tfcluster rerun {name}`"),
        "AwaitedDone": mark("{runs:and} succeeded or ended, as this run required."),
        "QueuePlace": mark("{what} (place {place} in the queue)"),
        "QueuePlaceWithin": mark("{what} (among the next {place} in the queue)"),
        "QueueTimeout": mark(
            "No room within {time:duration}: the run waited for {what}. Ask for less, or raise "
            "--queue-timeout."
        ),
        "Starting": mark_plural("Starting {count} task.", "Starting {count} tasks."),
        "WaitingForTasks": mark("Waiting for {tasks:commas} to start ({ready} of {total} ready)."),
        "AllTasksUp": mark_plural("{count} task is up.", "All {count} tasks are up."),
        "StartTimeout": mark(
            "{tasks:commas} did not come up within {time:duration}: {why}. "
            "Its output: `tfcluster logs {name} {task}`. "
            "If it only needs longer: --start-timeout 30m."
        ),
        "ImageTimeout": mark("{tasks:commas} had no image after {time:duration}: {why}{said}"),
        "ImageAdvice": mark(
            "Name another image (--image), or wait longer for this one: --image-timeout 10m"
        ),
        "PortNotOpened": mark("its TensorFlow server did not open its port"),
        "ProgramNotStarted": mark("its program was not started"),
        "ServersRunning": mark_plural(
            "{count} server accepts connections; "
            "`%tfcluster connect {name}` in a notebook uses it.",
            "All {count} servers accept connections; "
            "`%tfcluster connect {name}` in a notebook uses them.",
        ),
        "TasksRunning": mark_plural("{count} task is running", "{count} tasks are running"),
        "TasksFinished": mark("{tasks:commas} finished"),
        "MaxDuration": mark(
            "Not finished after {time:duration} (--max-duration): {tasks:commas} still ran. Raise "
            "the limit, or check with `tfcluster logs {name}` whether it hung."
        ),
        "IdleTimeout": mark(
            "No notebook used it for {time:duration} (--idle-timeout), since {since:clock}; its "
            "tasks were stopped."
        ),
        "Stalled": mark_plural(
            "Since {since:clock}, {tasks:commas} has printed nothing, written no event file and "
            "used almost no CPU.",
            "Since {since:clock}, {tasks:commas} have printed nothing, written no event file and "
            "used almost no CPU.",
        ),
        "StallTimeout": mark(
            "Nothing has happened for {time:duration} (--stall-timeout), since {since:clock}: "
            "{tasks:commas} printed nothing, wrote no event file and used almost no CPU."
        ),
        "WaitsForFinished": mark_plural(
            "{tasks:commas} waits for {peer}, which finished at {at:clock}.",
            "{tasks:commas} wait for {peer}, which finished at {at:clock}.",
        ),
        "WaitsForTask": mark_plural(
            "{tasks:commas} waits for {peer}.", "{tasks:commas} wait for {peer}."
        ),
        "FinishedBefore": mark_plural(
            "{tasks:commas} finished at {at:clock}.",
            "{tasks:commas} have finished, the last at {at:clock}.",
        ),
        "TensorFlowSays": mark("TensorFlow says: {words}"),
        "StallStacks": mark("Where each task is in its code: `tfcluster stack {name}`."),
        "StallAdvice": mark(
            "If you expect nothing more from it, end it: `tfcluster stop {name}`. With "
            "--stall-timeout 10m such a run ends automatically."
        ),
        "StallEnds": mark("The run ends when this has lasted {time:duration} (--stall-timeout)."),
        "StallAdviceLeader": mark(
            "If you expect nothing more from it, end it: `tfcluster stop {name}`. With "
            "--success-policy chief a run succeeds when {task} does; with --stall-timeout 10m it "
            "ends when nothing happens."
        ),
        "StartedElsewhere": mark(
            "{task} does not listen on its own port {own}, but on port {ports:commas}; it counts "
            "as started. Take the addresses from TF_CONFIG or the address flags: addresses "
            "written into a program work for only one run at a time, on one machine"
        ),
        "StartedBySteps": mark(
            "{task} does not listen on its own port {own}, but prints steps; it counts as started"
        ),
        "StartedByEventFiles": mark(
            "{task} does not listen on its own port {own}, but writes event files; it counts as "
            "started"
        ),
        "StartedByCpu": mark(
            "{task} does not listen on its own port {own}, but uses CPU ({cores} cores for "
            "{time:duration}); it counts as started. --max-duration still applies"
        ),
        "StopRequested": mark("A stop was requested by {whom}{said}"),
        "TasksToEnd": mark("waiting for {tasks:commas} to end"),
        "TasksCalledBack": mark("cancelling tasks that were requested and have not appeared yet"),
        "StoppedBy": mark("Stopped by {whom}{said}."),
        "Stopped": mark("Stopped."),
        "Succeeded": mark("{tasks:commas} finished successfully"),
        "ReclaimLater": mark("{tasks:commas} will be reclaimed {time:duration} later"),
        "Reclaimed": mark("Reclaimed {tasks:commas}."),
        "NeverStarted": mark("it was never started"),
        "EvaluatorFinished": mark("the evaluator finished, too"),
        "EvaluatorStopped": mark("the evaluator was stopped after its last evaluation"),
        "EvaluatorCutOff": mark(
            "the evaluator was stopped while it worked: raise --reclaim-after for its last "
            "evaluation"
        ),
        "EvaluatorStoppedEarly": mark("the evaluator was stopped"),
        "EvaluatorFailed": mark("the evaluator failed: {words}"),
        "EvaluatorNeverStarted": mark("the evaluator was never started"),
    },
    "Where a run writes, and what it found": {
        "WritesElsewhere": mark(
            "It writes to {folder}: TensorBoard and the progress display read that folder, and "
            "`tfcluster delete` does not remove it."
        ),
        "WritesLost": mark(
            "{task} writes to {folder} on the disk of its pod, which is lost with the pod. "
            "Results there are copied to the folder `written` of the run's output while there is "
            "room. Write to $TFCLUSTER_OUTPUT_DIR, which is kept"
        ),
        "TrainedNothing": mark(
            "It found {place}{of} in {folder}, so it had nothing left to do and trained {steps}. "
            "To begin anew, {anew}; to go on, ask for more steps: `tfcluster rerun {name} -- …`"
        ),
        "WithoutResume": mark("launch it without --resume"),
        "AnotherFolder": mark("remove that folder or name another one"),
        "NoStep": mark("no step"),
        "Steps": mark_plural("{count} step", "{count} steps"),
        "OfRun": mark(" of {run}"),
    },
    "How a task ended": {
        "ExitCode": mark("{task} failed with exit code {code}{said}"),
        "ExitCodeZero": mark("{task} exited with exit code 0{said}"),
        "Failed": mark("{task} failed{said}"),
        "Crashed": mark("{task} crashed ({signal}){more}{said}"),
        "OutOfMemory": mark("{task} ran out of memory at its limit of {limit}{more}"),
        "MachineOutOfMemory": mark("{task} ended, because this machine ran out of memory{more}"),
        "Killed": mark("{task} was killed from outside ({signal}){more}"),
        "NotStarted": mark("{task} could not be started: {why}"),
        "NoReason": mark("no reason was given"),
        "Lost": mark("{task} was lost{more}"),
        "Evicted": mark("{task} was evicted{more}"),
        "SignalNumber": mark("signal {number}"),
        "SomeSignal": mark("a signal"),
        "MemoryUsed": mark("used {used}"),
        "GracePeriodOver": mark("it did not end within its grace period and was killed"),
        "NoMoreProcesses": mark("this machine allows no more processes ({why})"),
        "NodeWasLowOn": mark("node {node} was low on {resource}"),
        "VolumeFilled": mark("it wrote more than {limit} to the volume {where}"),
        "DiskFilled": mark("it wrote more than {limit} to the disk of its node"),
        "Preempted": mark("a pod of higher priority took its place{said}"),
        "EvictedBySomebody": mark("somebody evicted it, for example to drain its node"),
        "EvictedByTaint": mark("a taint of its node evicted it"),
        "ContainerLost": mark("its node lost its container"),
        "PodDeleted": mark("its pod was deleted"),
        "NodeLost": mark("its node was lost"),
        "NodeCouldNotStart": mark("its node could not start it: {why}"),
    },
    "What was read from a program's text": {
        "NameInUse": mark(
            "{run} has not ended, so this cluster is named {name}; --name chooses another name"
        ),
        "InferredServer": mark("1 parameter server, because {why}; --ps N overrides it"),
        "InferredChief": mark("1 chief, because {why}; --no-chief overrides it"),
        "NeededChief": mark("1 chief, because {why}, and without a chief nothing trains"),
        "InferredEvaluator": mark("1 evaluator, because {why}; --no-evaluator overrides it"),
        "AwaitsNewest": mark(
            "it waits for {run}, the newest run of {name}; --after {name}-N names another one"
        ),
        "AwaitsNewestOfSchedule": mark(
            "it waits for {run}, the newest run of the schedule {name}; --after {cluster}-N names "
            "another one"
        ),
        "StrategyUnclear": mark(
            "No parameter server and no chief were added: the program can use several "
            "strategies, and {why}. If it trains with that strategy, launch it with --ps 1 "
            "--chief"
        ),
        "ServersUnused": mark(
            "{why}, a strategy that does not use parameter servers, so they would fail. Launch it "
            "without --ps"
        ),
        "ServerTrains": mark(
            "{why}, and nothing in the program uses parameter servers, so each task, also the "
            "parameter server, would train its own model. Launch it without --ps"
        ),
        "TakesFlag": mark("line {line} of {file} takes {name}"),
        "UsesName": mark("line {line} of {file} uses {name}"),
        "AsksType": mark("line {line} of {file} asks whether a task is of type {name}"),
        "LooksUpType": mark("line {line} of {file} looks up the addresses of type {name}"),
        "FlagsPassed": mark_plural(
            "{flags:commas} is passed, because line {line} of {file} takes it; --pass-flags none "
            "leaves it out",
            "{flags:commas} are passed, because the program takes them (line {line} of {file}); "
            "--pass-flags none leaves them out",
        ),
        "DataFolderPassed": mark(
            "{flag} is set to the data folder, because line {line} of {file} has no default for "
            "it; --pass-flags addresses leaves it out"
        ),
        "OutputFolderPassed": mark(
            "{flag} is set to the run's output folder, because line {line} of {file} has no "
            "default for it; --pass-flags addresses leaves it out"
        ),
        "FlagUnclear": mark(
            "{flag} is not passed: according to line {line} of {file}, it may mean a different "
            "folder from the one that TFCluster would pass. Pass it yourself, after ` -- `"
        ),
        "FlagUnrelated": mark(
            "{flag} is not passed: the program takes no other address flag (line {line} of "
            "{file}). Pass it yourself, after ` -- `"
        ),
        "FlagOfSubcommand": mark(
            "{flag} is not passed: it belongs to a subcommand (line {line} of {file}). Pass it "
            "yourself, after ` -- `"
        ),
    },
    "What a launch took from a project": {
        "FromProject": mark(
            "{file} sets {settings:commas}. An option of the launch overrides the file{replaced}"
        ),
        "FromConfiguration": mark(
            "{file} with its configuration {config} sets {settings:commas}. An option of the "
            "launch overrides the file{replaced}"
        ),
        "ReplacedHere": mark(" (overridden here: {settings:commas})"),
    },
    "Programs that tasks read when they start": {
        "ProgramNotPinned": mark(
            "{source} is not a snapshot: each task runs what is there when it starts, so a restart "
            "or a rerun may run something else. To pin it, set `sha256` in spec.program"
        ),
        "ChecksumDiffers": mark(
            "{source} does not have the checksum {expected} of spec.program.sha256, but {found}"
        ),
        "ProgramNotThere": mark(
            "there is no {path} where the task runs: a relative path is looked for in the "
            "workspace, a full one in the image and its volumes"
        ),
        "ProgramForbidden": mark(
            "the task may not read {path}: allow its user to read the file and to enter its folders"
        ),
        "NameWithoutChecksum": mark(
            "sha256sum would escape the name of the file {name} in the folder {folder}, so no "
            "checksum can be compared: rename that file"
        ),
        "ProgramNotFetched": mark(
            "{url} cannot be fetched: {why}. A pod reaches only the networks that `egress` of the "
            "administrator's policy grants"
        ),
        "ProgramIsWebPage": mark(
            "{url} is a web page, not a program: use the address of the raw file"
        ),
        "ProgramOfNoKind": mark(
            "{url} ends in none of .py, .sh, .zip, .tar.gz and .tgz, so it is unclear how to "
            "start it"
        ),
        "ArchiveDamaged": mark("the archive {archive} cannot be unpacked: {why}"),
        "ArchiveHoldsLink": mark(
            "{entry} in the archive {archive} is neither a file nor a folder: pack plain files"
        ),
        "ArchiveTooLarge": mark(
            "the archive {archive} unpacks to more than {most} MiB: keep data out of it"
        ),
        "ArchiveHoldsTooMany": mark(
            "the archive {archive} has more than {most} files and folders: keep data out of it"
        ),
        "ProgramRedirected": mark(
            "{url} leads to {target}, and only http and https are followed: name the address of "
            "the program itself"
        ),
        "CommandNotThere": mark("there is no command {command} where the task runs"),
    },
    "Details of a failed run": {
        "ServerLeftWorkers": mark(
            "The workers cannot go on without it: a parameter server must call server.join()"
        ),
        "FinishedFirst": mark(
            "{task} finished first, and {others:commas} could not go on without it{said}"
        ),
        "EqualSteps": mark(
            "All workers take each step together: give each the same number of steps, such as with "
            "dataset.repeat() and steps_per_epoch"
        ),
        "RestartsUsedUp": mark(
            "It had already been restarted {times}; raise this limit with --heals"
        ),
        "FailedAlike": mark("{tasks:commas} failed in the same way"),
        "EndedAfterIt": mark_plural(
            "{tasks:commas} ended after it", "{tasks:commas} ended after it, too"
        ),
        "FlagRefused": mark_plural(
            "TFCluster passed {flags:commas}, which the program refuses. Launch it without the "
            "flag: `tfcluster rerun {name} --pass-flags {word}`",
            "TFCluster passed {flags:commas}, which the program refuses. Launch it without the "
            "flags: `tfcluster rerun {name} --pass-flags {word}`",
        ),
        "SeeLogs": mark("Output of {task}: `tfcluster logs {name} {task}`"),
        "FewerTasks": mark("Use fewer tasks or smaller batches, or set a limit for each task"),
        "RaiseMemory": mark("Raise the limit with `tfcluster rerun {name} {option}`"),
    },
    "Advice about common errors": {
        "TensorFlowMissing": mark(
            "TensorFlow is missing where the tasks run: `python -m pip install tensorflow-cpu`, "
            "or on Kubernetes an image that has it (--image)"
        ),
        "ModuleMissing": mark(
            "Install it for the Python that `tfcluster options` names: `python -m pip install "
            "{module}`"
        ),
        "PortTaken": mark(
            "The program asked for a port that is taken: let it use its own address from "
            "TF_CONFIG or --*_hosts"
        ),
        "CommandMissing": mark("There is no command {command} where the tasks run"),
        "DiskFull": mark("The disk is full: free space, or write somewhere else"),
        "NoServersWanted": mark(
            "MultiWorkerMirroredStrategy has no parameter servers: launch it without --ps"
        ),
        "KerasUnsupported": mark(
            "Keras 3 cannot fit() under this strategy: use tf_keras (--env TF_USE_LEGACY_KERAS=1)"
        ),
        "PyFunctionElsewhere": mark(
            "py_function runs only in the process that defined it: place it in that process"
        ),
        "PathNotWritable": mark(
            "The task has no permission for {path}: write to $TFCLUSTER_OUTPUT_DIR instead"
        ),
        "NotExecutable": mark(
            "Make it executable with `chmod +x {command}`, or name what runs it: `bash {command}`"
        ),
        "FileMissing": mark(
            "There is no {path} where the task runs. Put data below $TFCLUSTER_DATA_DIR, and name "
            "files by their full path"
        ),
        "LegacyTensorFlow": mark(
            "It was written for TensorFlow 1: use `import tensorflow.compat.v1 as tf` with "
            "`tf.disable_v2_behavior()`; TensorFlow 2 has no tf.contrib and no tensorflow.examples"
        ),
        "DeviceMemory": mark(
            "The device does not have enough memory: use smaller batches or a smaller model, and "
            "one task for each GPU"
        ),
        "HostMemory": mark(
            "It asked for more memory than there is: use smaller batches, or read the data in parts"
        ),
        "OtherProcessor": mark(
            "A library was built for another kind of CPU: install a build for this CPU"
        ),
        "CudaMissing": mark(
            "The CUDA libraries are missing where the tasks run: install `tensorflow[and-cuda]`, "
            "or tensorflow-cpu for tasks without a GPU"
        ),
        "CudnnFailed": mark(
            "cuDNN could not start: another process holds the GPU's memory, or its version does "
            "not match this TensorFlow"
        ),
        "OlderSystem": mark(
            "A library was built for a newer system than the tasks run on: install it again for "
            "this Python, or use another image"
        ),
        "PackagesConflict": mark(
            "Installed packages are incompatible: `python -m pip check` names them"
        ),
        "DataRanOut": mark(
            "The data ended before the steps did: repeat it with `dataset.repeat()`, or ask for "
            "fewer steps"
        ),
        "MissingArguments": mark("Give the program {arguments} after `--`"),
        "UnknownArguments": mark("The program does not know {arguments}: check what follows `--`"),
    },
    "Failures under investigation, retries and healing": {
        "Investigating": mark(
            "{ended}; checking for up to {time:duration} whether another task was the cause."
        ),
        "BackingOff": mark("Retry {number} of {most} in {time:duration}"),
        "Healing": mark("{what} ({number} of {times}); {after}"),
        "RestartTogether": mark("All workers restart together"),
        "RestartAlone": mark("It is restarted"),
        "RestoreVariables": mark(
            "its variables are gone: initialise or restore them in the notebook"
        ),
        "ClientGoesOn": mark("the client in the notebook goes on, or has to open a new session"),
        "OthersGoOn": mark("the others go on meanwhile"),
        "NothingSaved": mark(
            "no checkpoint was found, so training starts from the beginning unless the program "
            "saved its state elsewhere"
        ),
        "ResumesFrom": mark("training resumes from {place}"),
        "NewestCheckpoint": mark("its newest checkpoint, if it saves any"),
        "CheckpointAtStep": mark("the checkpoint at step {step}"),
        "CheckpointNamed": mark("its checkpoint {checkpoint}"),
        "TheBeginning": mark("the beginning"),
        "RestartAfterDisruption": mark(
            "{task} ended after the disruption, so the workers restart together from {where}."
        ),
    },
    "Errors that a success hides": {
        "ThreadDied": mark(
            "{task} finished although one of its threads had ended with an error{said}"
        ),
        "ProcessDied": mark(
            "{task} finished although one of its processes had ended with an error{said}"
        ),
        "PipeHid": mark(
            "{task} finished with exit code 0 although its output ends with an error{said}. A "
            "pipe such as `python train.py | tee log` hides the exit code of the command before "
            "it: begin the script with `set -o pipefail`"
        ),
    },
    "Records and disks": {
        "LogCopyFailed": mark(
            "The log volume accepts no copies of the tasks' output ({why}): training goes on, and "
            "copying resumes when there is room. Make room with `tfcluster delete NAME "
            "--with-logs`"
        ),
        "RecordDamaged": mark(
            "Its record {path} cannot be read: {why}. None of its tasks runs any more; remove it "
            "with `tfcluster delete {name}`"
        ),
        "RecordDamagedRunning": mark(
            "Its record {path} cannot be read: {why}. While the run is active, it rewrites "
            "the record. To end the run: `tfcluster stop {name}`; to remove it: `tfcluster delete "
            "{name}`"
        ),
        "StatusDamaged": mark(
            "Its status {path} cannot be read; while the run is active, it writes the status again."
        ),
    },
    "A supervisor that is gone (on one machine)": {
        "StatusFileDamaged": mark("Its status file is damaged and its supervisor is gone"),
        "MachineRestarted": mark("The machine was restarted while it ran"),
        "SupervisorError": mark("Its supervisor ended with an error ({words})"),
        "SupervisorKilled": mark("Its supervisor was killed from outside"),
        "SaidNothing": mark("it printed nothing"),
        "LeftoversEnded": mark("{what}; its remaining tasks ended, too."),
        "StoppedUnsaid": mark("Stopped. {what}, so the end of the run was not recorded in time."),
        "SupervisorLost": mark(
            "{what}; its tasks ended with it. Logs are kept; "
            "start again with `tfcluster rerun {name}`."
        ),
        "LaunchInterrupted": mark(
            "Its launch was ended half-way, before any task was started; "
            "start it with `tfcluster rerun {name}`."
        ),
    },
    "What a run waits for in the queue (on Kubernetes)": {
        "OperatorLooksAround": mark("the operator to read the state of the cluster"),
        "OperatorCountsHours": mark("the operator to add up the hours used"),
        "NamespaceClosed": mark(
            "an administrator of the cluster to let TFCluster work in namespace {namespace}: "
            "`{command}`"
        ),
        "VolcanoMissing": mark("Volcano, which the policy demands and this cluster does not have"),
        "PolicyCheckPending": mark("the check that NetworkPolicies are enforced on this cluster"),
        "TurnAfter": mark("its turn after {name}"),
        "LaunchPace": mark(
            "its turn: this namespace has started {count} clusters; the others start one per second"
        ),
        "EarlierOffer": mark(
            "capacity that was there when the run was queued ({problems:clauses}); the run fails "
            "if it does not come back"
        ),
        "Missing": "{parts:commas}{held}",
        "NodesWithRoom": mark("nodes with {amount} free for a task"),
        "MoreInQuota": mark("{more} more in quota {quota} ({key})"),
        "MoreOnNodes": mark("{more} more on the nodes"),
        "MoreMemoryHere": mark("{more} more memory on this machine"),
        "MoreGpusHere": mark_plural("{count} more GPU", "{count} more GPUs"),
        "RoomInLimits": mark("room within your limits: {why}"),
        "HeldBy": mark(", used by {holders:commas}"),
        "EarlierObject": mark("{kind} {name} of an earlier run of this name is still there"),
        "ObjectsNotMade": mark("its objects to be created: {why}"),
        "TasksLack": mark("what its tasks lack: {why}"),
        "VolcanoGone": mark(
            "Volcano, which is not on this cluster any more: stop the run, and launch it again"
        ),
        "VolcanoSilent": mark("Volcano's answer (queue {queue}, which must exist and be open)"),
        "VolcanoSays": mark(
            "room for all {count} tasks at once in Volcano's queue {queue}, which says: {why}"
        ),
        "VolcanoQueueMissing": mark(
            "Volcano's queue {queue}, which does not exist: ask the administrator"
        ),
        "VolcanoQueueClosed": mark("Volcano's queue {queue}, which accepts no jobs now ({state})"),
    },
    "What hinders or hindered a run (on Kubernetes)": {
        "Obstacle": "{why}",
        "Refused": "{why}",
        "JobDeleted": mark("Somebody deleted the Job {name} while the run was active."),
        "JobDeletedUnseen": mark(
            "The Job {name} was deleted while no operator was running: it is not known how its "
            "tasks ended."
        ),
        "SuccessUnseen": mark(
            "It is not known when it ended: no operator was running, and Kubernetes has deleted "
            "its Jobs, as it does an hour after all their tasks have succeeded."
        ),
    },
    "What tasks wait for (on Kubernetes)": {
        "TasksWait": mark_plural("{who:and} waits: {why}", "{who:and} wait: {why}"),
        "TasksWaitForPeers": mark_plural(
            "{who:and} waits for {peers:commas}", "{who:and} wait for {peers:commas}"
        ),
        "PeersNotUp": mark("waits for {peers:commas}"),
        "PeerSilent": mark("its TensorFlow gets no answer from {peer}"),
        "PortNotOpenedYet": mark(
            "it runs and has not opened its port yet: importing TensorFlow takes a while"
        ),
        "NameUnresolved": mark(
            "the name of {peer} does not resolve though it runs: the cluster's DNS does not "
            "answer; ask the administrator"
        ),
        "WaitsForAddress": mark("it waits for the address of {peers:commas}"),
        "NodeSilent": mark(
            "its node {node} does not answer: if it stays silent, the task starts on another node"
        ),
        "SchedulingGated": mark("a scheduling gate keeps its pod from starting"),
        "KubernetesSays": mark("Kubernetes says: {words}"),
    },
    "Why no node takes a pod": {
        "NoRoomForAll": mark("there is no room for all tasks together yet"),
        "NodesTooBusy": mark("no node has {what:and} free"),
        "NodesTooSmall": mark("no node has {what:and}; the largest has {has:commas}{use}"),
        "NoNodeFree": mark("no node has {what:and} free; the largest has {has:commas} free{use}"),
        "OthersUseNodes": mark(
            "no node has {what:and} free, because others use it: the run starts when they end; "
            "or ask for less"
        ),
        "AmountOfMemory": mark("{amount} of memory"),
        "LabelMissing": mark("no node has the labels that it asks for: ask the administrator"),
        "LabelsMissing": mark(
            "no free node has the label {labels}, which the task requires here: ask the "
            "administrator"
        ),
        "NodesClosed": mark_plural(
            "{count} node is closed to new pods", "{count} nodes are closed to new pods"
        ),
        "NodesLost": mark_plural("{count} node does not answer", "{count} nodes do not answer"),
        "NodesReserved": mark_plural(
            "{count} node is reserved for others{more}",
            "{count} nodes are reserved for others{more}",
        ),
        "TooManyVolumes": mark("no node can mount more volumes"),
        "TooManyPods": mark("every node holds as many pods as it may"),
        "PortInUse": mark("its port is taken on every node"),
    },
    "Claims and volumes": {
        "ClaimMissing": mark(
            "there is no claim {claim} in this namespace: make it, or name one that exists"
        ),
        "ClaimDeleted": mark("the claim {claim} is being deleted"),
        "ClaimUnbound": mark("one of its claims has no volume yet"),
        "ClaimsUnbound": "{parts:sentences}",
        "ClaimClassMissing": mark(
            "the claim {claim} asks for the storage class {name}, which does not exist: "
            "make the claim again with a class of `kubectl get storageclass`"
        ),
        "ClaimProvisionerSilent": mark(
            "the claim {claim} has no volume yet, because its provisioner {provisioner} has not "
            "created one: ask the administrator whether the provisioner runs"
        ),
        "ClaimPending": mark("the claim {claim} has no volume yet: {why}"),
        "ClaimWithoutClass": mark(
            "the claim {claim} has no volume and names no storage class: create it again with a "
            "storage class"
        ),
        "ClaimOfClassUnbound": mark("the claim {claim} has no volume of the class {name} yet"),
        "ClaimForOnePod": mark(
            "the claim {claims:commas} serves one pod at a time (ReadWriteOncePod) and another "
            "uses it: use a claim that is ReadWriteMany"
        ),
        "ClaimOnOneNode": mark(
            "the volume of the claim {claims:commas} is on one node only, which has too few free "
            "resources: use a claim that is ReadWriteMany"
        ),
        "ClaimInUse": mark(
            "its claim {claims:commas} is in use on another node and serves one node at a time "
            "(ReadWriteOnce): use a claim that is ReadWriteMany"
        ),
        "Unnamed": mark("(unnamed)"),
        "VolumeNotMounted": mark("its volume {volume} cannot be mounted: {why}"),
        "DriverMissing": mark(
            "its node has no driver {driver}, which mounts its volume: ask the administrator"
        ),
    },
    "Images and containers": {
        "ImageFetching": mark("its image {image} is being fetched"),
        "RegistrySays": mark("the registry says: {words}"),
        "ImageNotFetched": mark("the image {image} cannot be fetched: {why}"),
        "ImageNameInvalid": mark("{image:quoted} is not a valid image name"),
        "ImageNotOnNode": mark("the node has no image {image} and may not fetch it"),
        "ImageSecretRefused": mark(
            "the registry refuses the image {image} to the account in the secret "
            "{secrets:commas}: check that the secret exists, and its user and password"
        ),
        "ImagePrivate": mark(
            "the image {image} is private: use --image-pull-secret to name a secret that opens "
            "its registry"
        ),
        "ImageOtherProcessor": mark("the image {image} is not made for this node's processor"),
        "ImageDiskFull": mark("the node's disk is full: there is no space for the image {image}"),
        "ImageNotFound": mark("there is no image {image}: check its name and tag"),
        "RegistryUnreachable": mark(
            "the node does not reach the registry of the image {image}: {why}"
        ),
        "ImageLacksCommand": mark("its image {image} has no {command}"),
        "ImageRunsAsRoot": mark("the image {image} would run as root"),
        "ObjectMissing": mark("there is no {kind} {name} in this namespace"),
        "SecretMissing": mark("there is no secret {name} in this namespace"),
        "KeyMissing": mark("the {kind} {name} has no key {key}"),
        "NetworkNotReady": mark("its node cannot make its network yet: {why}"),
        "NodeNotReady": mark("its node {node} does not answer"),
    },
    "Why a Job may not make its pods": {
        "QuotaUsedUp": mark(
            "the quota {name} of this namespace is used up ({told:commas}): "
            "end another run, or ask for fewer or smaller tasks"
        ),
        "QuotaTaken": mark("{used} of {limit} is taken and a {task} needs {each}"),
        "QuotaNeedsRequests": mark(
            "the quota {name} requires every task to state {keys:commas}{use}"
        ),
        "BoundsBroken": "{parts:clauses}{use}",
        "TaskTooLarge": mark(
            "a task may use at most {bound} in this namespace, but {has} is requested"
        ),
        "TaskTooSmall": mark(
            "a task must use at least {bound} in this namespace, but {has} is requested"
        ),
        "LimitRatio": mark(
            "in this namespace the limit of {name} may be at most {ratio} times its request: ask "
            "the administrator, or use a smaller {option}"
        ),
        "WebhookSilent": mark(
            "the admission webhook {name}, which must admit each pod, does not answer: it is "
            "tried again; ask the administrator ({why})"
        ),
        "WebhookRefused": mark("the admission webhook {name} refuses it: {why}"),
        "PodSecurityRefused": mark(
            "Pod Security {level} of this namespace refuses its pod: {why}; ask the administrator"
        ),
        "PriorityClassMissing": mark(
            "there is no priority class {name}, which the administrator's policy names"
        ),
        "ServiceAccountMissing": mark(
            "the administrator's policy names the service account {name}, which does not exist in "
            "the namespace {namespace}"
        ),
        "NamespaceDeleted": mark("this namespace is being deleted"),
    },
    "Why a notebook's pod does not start": {
        "NotebookQuotaUsedUp": mark(
            "the quota {name} of your namespace is used up: the pod asks for {requested}, "
            "and {used} of {limited} is taken"
        ),
        "ClusterRulesRefused": mark("the cluster's rules refuse its pod: {why}"),
    },
    "Why a launch is refused": {
        "LaunchRefused": mark("the launch was refused"),
        "NoRoomForCluster": mark("there is no room for this cluster"),
        "CannotRunHere": mark("this cluster cannot run here"),
        "RequestRefused": mark("the request was refused"),
        "RecordWrong": mark("the TFCluster {name} is invalid"),
        "RecordUnreadable": mark("it cannot be read: {why}"),
        "RefusedFor": mark("{what}: {problem}"),
        "RefusedForReasons": mark("{what} for {count} reasons:\n  - {problems:lines}"),
        "Problem": mark("{field}: got {value}; {allowed}"),
        "Quoted": "{words:quoted}",
        "Nothing": mark("nothing"),
        "Bytes": mark("{count} bytes"),
        "Cores": mark_plural("{count:g} core", "{count:g} cores"),
        "Gpus": mark_plural("{count:g} GPU", "{count:g} GPUs"),
        "More": mark("{count} more"),
        "TheCluster": mark("the cluster"),
        "TheNamespace": mark("the namespace"),
        "TheRecord": mark("the record"),
    },
    "What a value may be": {
        "Required": mark("it is required"),
        "ExpectedObject": mark("expected an object"),
        "NoSuchField": mark("no such field. Allowed: {known:commas}"),
        "NoSuchFieldBut": mark(
            "no such field; did you mean {close:quoted}? Allowed: {known:commas}"
        ),
        "UseOneOf": mark("use {words:or}"),
        "UseKind": mark("use {kind}{bound}"),
        "OfLength": mark(" of length{bound}"),
        "Number": mark("a number"),
        "WholeNumber": mark("a whole number"),
        "Text": mark("text"),
        "TrueOrFalse": mark("true or false"),
        "Object": mark("an object"),
        "List": mark("a list"),
        "UseFiniteNumber": mark("use a finite number"),
        "WriteMemory": mark("write a number with Ki, Mi, Gi or Ti, such as 512Mi or 2Gi"),
        "NotMemory": mark("{text:quoted} is not an amount of memory: {rule}"),
        "WriteDuration": mark("write seconds, or a duration such as 30s, 10m, 1h30m or 7d"),
        "NotDuration": mark("{text:quoted} is not a duration: {rule}"),
        "ClusterName": mark(
            "use 1 to {most} lower-case letters, digits and '-', starting with a letter, "
            "ending in a letter or digit, and not in '-<number>' (that would read as a run)"
        ),
        "ClusterNameTry": mark(
            "try {close}: up to {most} lower-case letters, digits and '-', a letter first, no "
            "'-<number>' at the end"
        ),
        "RunName": mark("name it <cluster>-<run>, such as digits-1; for <cluster>: {rule}"),
        "NoLineBreak": mark("leave out the line break"),
        "NulInValue": mark("a value cannot hold a NUL character"),
        "NulInArgument": mark("an argument cannot hold a NUL character"),
        "NotUtf8": mark("it is not UTF-8 text, and a record can hold only UTF-8 text"),
        "ObjectName": mark(
            "the name of an object in Kubernetes has lower-case letters, digits, '-' and '.'"
        ),
        "WriteFullPath": mark(
            "write a full path, such as /mnt/images, without ':' and line breaks"
        ),
        "WritePath": mark("write a path without line breaks"),
        "ExactRun": mark("name a run with its number, such as prepare-3"),
        "WriteSubPath": mark(
            "write a path inside the claim, without ':' and without a '/' at the beginning"
        ),
        "WriteAddress": mark("write an address such as https://example.com/train.py"),
        "WriteImage": mark(
            "write an image as in registry:5000/team/image:tag, without spaces or 'https://'"
        ),
        "NotImage": mark(
            "it is not an image reference: write REGISTRY/REPOSITORY:TAG in lower case"
        ),
        "NotImageTag": mark("{tag} is not an image tag"),
        "NotImageDigest": mark("{digest} is not an image digest"),
        "ImageTagMissing": mark("the tag or digest after : or @ is missing"),
        "KeyOfSecret": mark(
            "a key of a secret has letters, digits, '-', '_' and '.', such as accesskey"
        ),
        "AnnotationNames": mark(
            "write names such as prometheus.io/scrape, at most 63 characters after the '/', "
            "and at most 32 annotations"
        ),
    },
    "What a spec may have": {
        "OneAtMost": mark("there is at most 1"),
        "WorkerNeeded": mark("at least 1 worker (or a chief) is needed"),
        "TasksAtMost": mark("at most {most} tasks in total"),
        "ProgramNeeded": mark("there is no program: name a file, a folder, a URL or a cell"),
        "ProgramUnused": mark("in-graph runs no program: the notebook is the client"),
        "NoSuchTasks": mark("in-graph has only parameter servers and workers: use 0"),
        "MemoryAtLeast": mark("TensorFlow cannot start below {least}"),
        "EnvironmentName": mark("a name has letters, digits and '_', and no digit first"),
        "ReservedName": mark("this name is set by TFCluster itself; choose another"),
        "OneProgram": mark(
            "a program is one of inline, command, path, url and files: keep one of them"
        ),
        "NoProgram": mark(
            "say what runs: `inline` with the program itself, `command` of the image, `path` "
            "that tasks see, or `url`"
        ),
        "CommandAlone": mark(
            "a command of the image takes neither a checksum nor an entrypoint: leave them out"
        ),
        "EntrypointNeeded": mark("name the file that starts the program"),
        "EntrypointMissing": mark("it is not among the program's files: name one of them"),
        "PayloadAtMost": mark(
            "environment, arguments and a program inside the record may have {limit} KiB together: "
            "keep large values in a file of your workspace and pass its path, and launch a large "
            "program with `tfcluster launch`, which stores the program in your workspace"
        ),
        "InterpreterPath": mark("name a Python by its full path"),
        "PlainPath": mark("write the path without '.', '..', a doubled '/' or one at the end"),
        "HidingMount": mark(
            "it would hide what tasks need: choose another folder, such as /mnt/images, not one "
            "below {ours:commas} nor a folder of the system"
        ),
        "MountedTwice": mark("something else is mounted there: use each path once"),
        "NamedTwice": mark("it is named twice: once is enough"),
        "FilesOrVariables": mark(
            "a secret becomes files at a path, or variables: list it twice to get both"
        ),
        "ClaimAtLeast": mark("a claim has at least {least}"),
        "OnlyServersInGraph": mark("only in-graph clusters have servers"),
        "NoFlagsInGraph": mark("in-graph runs no program that could take flags"),
        "RecordAltered": mark(
            "the program in the record was altered, or the given checksum is wrong: the "
            "program's checksum is {found}"
        ),
        "RecordNotBase64": mark("its files are not base64: the record was altered"),
        "StrangeFileName": mark("a file name may not contain {name}; rename that file"),
        "FileAndFolder": mark(
            "{path} is both a file and a folder in the program; keep one of them"
        ),
        "NoWorkspaceForPath": mark(
            "tasks here see no workspace: give the full path of a file in the image or a volume, "
            "or write the program as `inline`"
        ),
        "NoWorkspaceForProgram": mark(
            "tasks here see no workspace, so a program has to travel in the record: keep it "
            "below {limit}, and its data elsewhere"
        ),
        "RunFilesTooLarge": mark(
            "the files of a run may be {limit} together, and these are {size}: keep large values "
            "in a file of the data volume"
        ),
    },
    "What the administrator allows": {
        "ImagesAllowed": mark("the administrator allows {images:commas}"),
        "DigestRequired": mark(
            "the administrator requires a digest, as in {name}@sha256:…; find it with "
            "`docker buildx imagetools inspect {image}`"
        ),
        "DurationAllowed": mark("the administrator allows at most {most:duration}"),
        "AnnotationsAllowed": mark("the administrator allows annotations {patterns:commas}"),
        "NoAnnotationsAllowed": mark("the administrator allows no annotations"),
        "NoSuchClaim": mark("there is no such PersistentVolumeClaim; there are: {claims:commas}"),
        "ClaimReadOnly": mark("the claim is {modes:commas}: mount it read-only"),
        "ClaimOfOnePod": mark(
            "the claim is {modes:commas}, for one pod, and {count} tasks would use it"
        ),
        "ClaimOfOneNode": mark(
            "the claim is {modes:commas}, for pods of one node, and {count} tasks on several nodes "
            "would use it: a claim of a ReadWriteMany class is needed"
        ),
        "NoSuchStorageClass": mark("there is no such StorageClass; there are: {classes:commas}"),
        "NoDefaultStorageClass": mark(
            "the cluster has no default StorageClass: name one of {classes:commas}"
        ),
        "ClaimAtMost": mark("a claim may have at most {most} here"),
        "SecretsNotSeen": mark(
            "the operator may not see which secrets of this namespace are labelled for tasks: "
            "ask an administrator to bind the ClusterRole tfcluster-operator-secrets to the "
            "operator in that namespace"
        ),
        "SecretNotForTasks": mark(
            "tasks may use secrets that an administrator labelled {label}=true; there are: "
            "{secrets:commas}"
        ),
        "SecretNoPullSecret": mark(
            "it has type {type}; a secret for a registry has one of the types {types:commas}"
        ),
        "PoliciesNotEnforced": mark(
            "NetworkPolicies are not enforced on this cluster, so everybody on it could use the "
            "tasks: install a network plugin that enforces them, or accept it in the operator's "
            "policy (requireNetworkPolicy: false)"
        ),
        "BudgetUsed": mark("{used} of {most} {unit} {when} are used, and nothing new starts"),
        "BudgetNone": mark("you have no {unit} at all"),
        "BudgetNearlyUsed": mark("With none left, nothing new starts."),
        "BudgetComesBack": mark("{amount} {unit} come back on {day} (0:00 UTC)"),
        "AskHubAdministrator": mark("for more, ask an administrator of the hub"),
        "ThisWeek": mark("this week"),
        "InDays": mark_plural("today", "in {count} days"),
    },
    "What fits": {
        "TooManyTasks": mark("at most {most} tasks run here: use fewer"),
        "TooManyTasksUse": mark("at most {most} tasks run here: use {flag} {fits}"),
        "TooManyReplicas": mark(
            "{fitting}, but {count} were requested: use {flag} {fits}, or {less}; {free}"
        ),
        "WorkersFit": mark_plural("{count} worker of {each} fits", "{count} workers of {each} fit"),
        "ServersFit": mark_plural(
            "{count} ps of {each} fits", "{count} parameter servers of {each} fit"
        ),
        "LessForEach": mark("less for each"),
        "NoFit": mark("the tasks do not fit together: {free}. Use fewer tasks, or less for each"),
        "FreeBut": "{parts:clauses}{held}",
        "FreeOnNodes": mark("{free} of {total} is free on the nodes"),
        "LeftInQuota": mark("quota {quota} has {free} of {total} left ({key})"),
        "NotOnSingleNodes": mark("there is enough in total, but not on any single node"),
        "NoNodeTakesTasks": mark("no node takes tasks: ask an administrator"),
        "NoNodeHas": mark("no node has {resource}: ask for none"),
        "NoNodeHasSoMuch": mark("no node has that much; the largest has {amount}: request less"),
        "QuotaMakesSay": mark("quota {quota} requires {key} for every task: set it"),
        "InLimitRange": mark("{rule} (LimitRange {name})"),
        "TaskAtMost": mark("a task may use at most {most}"),
        "TaskSaysLimit": mark("a task must set its limit, at most {most}"),
        "TaskAtLeast": mark("a task must request at least {least}"),
        "LimitAtMost": mark("a limit may be at most {ratio:g} times the request"),
    },
    "What became of a due time of a schedule": {
        "ScheduleMissed": mark(
            "It was not launched on time: the machine was off, or the clock process was not "
            "running."
        ),
        "ScheduleDeadline": mark("It was given up {time:duration} after its due time."),
        "ScheduleOverlap": mark("{name} had not ended (--overlap forbid)."),
        "ScheduleSuperseded": mark("A later due time came before it began (--overlap replace)."),
        "ScheduleReplaced": mark("A later due time replaces it (--overlap replace)."),
        "SchedulePreviousFailed": mark(
            "The previous run {name} did not succeed (--after-success)."
        ),
        "ScheduleWaitsForPrevious": mark("It waits for the previous due time (--after-success)."),
        "ScheduleWaitsForEnd": mark("It waits for the end of {name}."),
        "ScheduleWaitsForOthers": mark_plural(
            "It waits for another run of the schedule to end (--max-parallel).",
            "It waits for one of {count} other runs of the schedule to end (--max-parallel).",
        ),
        "ScheduleWaitsForSchedule": mark("It waits for the run of {name} for the same due time."),
        "ScheduleAwaitedFailed": mark("{name} did not succeed (--after)."),
        "ScheduleAwaitedNever": mark("The schedule {name} has no run for that due time (--after)."),
        "ScheduleAwaitedPaused": mark(
            "The schedule {name} is paused and has no run for that due time (--after)."
        ),
        "ScheduleAwaitedUnknown": mark(
            "The schedule {name} does not exist or does not work (--after)."
        ),
        "ScheduleRunGone": mark(
            "The record of {name} was deleted before the schedule saw its end: how it ended is "
            "not known."
        ),
        "ScheduleRunRemoved": mark("The record of {name} was removed while it ran."),
        "ScheduleRunDeleted": mark("{name} failed, and its record was deleted."),
        "ScheduleRunFailed": mark("{name} failed: {why:sentences}"),
        "ScheduleRunStopped": mark("{name}: {why:sentences}"),
        "ScheduleNeverBegan": mark("Its launch was interrupted and is repeated."),
        "ScheduleNotLaunched": mark("It could not be launched: {why}"),
        "ScheduleAdvised": mark(
            "Launched with {changes:commas}, advised by the usage of {runs:and}."
        ),
        "ScheduleAdviceRefused": mark("Launched without the advised {changes:commas}: {why}"),
        "SchedulePausedItself": mark_plural(
            "{count} due time failed (--pause-after).",
            "{count} due times failed in a row (--pause-after).",
        ),
    },
    "Advice on the size of a run": {
        "AdviceNotSampled": mark(
            "There is no advice: not every worker has been sampled, so the tasks cannot be compared"
        ),
        "AdviceTooShort": mark(
            "There is no advice: all workers were at work together for {seconds:g} s, and at "
            "least {least:g} s are needed (the first {start:g} s of a task do not count)"
        ),
        "AdviceIdle": mark_plural(
            "{tasks:and} has done nothing for {time:duration}; after {most:duration} it counts as "
            "hanging. See its line: `tfcluster stack {run} {task}`",
            "{tasks:and} have done nothing for {time:duration}; after {most:duration} they count "
            "as hanging. See the line of each: `tfcluster stack {run}`",
        ),
        "AdviceHangs": mark_plural(
            "{tasks:and} hangs: it has done nothing for {time:duration}. See the line at which it "
            "hangs: `tfcluster stack {run} {task}`",
            "{tasks:and} hang: they have done nothing for {time:duration}. See the line at which "
            "each hangs: `tfcluster stack {run}`",
        ),
        "AdviceHangsAt": mark(
            "{task} hangs: it has done nothing for {time:duration} and is stuck at line {line} of "
            "{file}, in {function}. See all its threads: `tfcluster stack {run} {task}`"
        ),
        "AdviceThrottled": mark(
            "{task} was throttled at its limit of {limit:g} CPU for {percent} % of the time (it "
            "used {cpu:g} CPU): raise the limit"
        ),
        "AdviceServerCpu": mark_plural(
            "{tasks:and} limits the training: it uses {cpu:g} CPU while each worker waits and uses "
            "{workers:g}: add parameter servers",
            "{tasks:and} limit the training: they use up to {cpu:g} CPU each while each worker "
            "waits and uses {workers:g}: add parameter servers",
        ),
        "AdviceServerNetwork": mark_plural(
            "{tasks:and} limits the training by its network: it transfers {speed}B/s while it uses "
            "{cpu:g} CPU and each worker waits and uses {workers:g}: add parameter servers",
            "{tasks:and} limit the training by their network: they transfer up to {speed}B/s each "
            "while each worker waits and uses {workers:g} CPU: add parameter servers",
        ),
        "AdviceServerCpuAlone": mark_plural(
            "Only {tasks:and} limits the training: it uses {cpu:g} CPU, the other parameter "
            "servers {others:g} each, and each worker waits and uses {workers:g}. More servers "
            "do not help if a single large variable causes this: split the variable with a "
            "partitioner",
            "Only {tasks:and} limit the training: they use up to {cpu:g} CPU each, the other "
            "parameter servers {others:g}, and each worker waits and uses {workers:g}. More "
            "servers do not help if single large variables cause this: split the variables with "
            "a partitioner",
        ),
        "AdviceServerNetworkAlone": mark_plural(
            "Only {tasks:and} limits the training, by its network: it transfers {speed}B/s, the "
            "other parameter servers {others}B/s each, and each worker waits and uses "
            "{workers:g} CPU. More servers do not help if a single large variable causes this: "
            "split the variable with a partitioner",
            "Only {tasks:and} limit the training, by their network: they transfer up to "
            "{speed}B/s each, the other parameter servers {others}B/s, and each worker waits and "
            "uses {workers:g} CPU. More servers do not help if single large variables cause "
            "this: split the variables with a partitioner",
        ),
        "AdviceInputDisk": mark_plural(
            "The worker waits for input: it uses {cpu:g} CPU and reads {speed}B/s from a disk: "
            "read several files in parallel and prefetch (`dataset.prefetch`)",
            "The workers wait for input: each uses {cpu:g} CPU and reads {speed}B/s from a disk: "
            "read several files in parallel and prefetch (`dataset.prefetch`)",
        ),
        "AdviceInputNetwork": mark_plural(
            "The worker waits for input: it uses {cpu:g} CPU and receives {speed}B/s that no task "
            "of the run has sent: read in parallel and prefetch (`dataset.prefetch`)",
            "The workers wait for input: each uses {cpu:g} CPU and receives {speed}B/s that no "
            "task of the run has sent: read in parallel and prefetch (`dataset.prefetch`)",
        ),
        "AdviceSlowWorker": mark(
            "{task} is slower than the other workers: {rate:g} steps/s instead of {others:g}; "
            "check its part of the data and the machine that it runs on"
        ),
        "AdviceAwaitedWorker": mark(
            "The other workers wait for {task}: it uses {cpu:g} CPU, they use {others:g}; check "
            "its part of the data and the machine that it runs on"
        ),
        "AdviceTooManyWorkers": mark_plural(
            "{workers} workers reach {rate:g} steps/s, hardly more than the {earlier:g} steps/s "
            "that {run} reached with {count} worker: use fewer",
            "{workers} workers reach {rate:g} steps/s, hardly more than the {earlier:g} steps/s "
            "that {run} reached with {count} workers: use fewer",
        ),
        "AdviceGpuIdle": mark(
            "The GPUs of {type} are idle: {gpus} requested for each task, and no task keeps more "
            "than {used:g} busy"
        ),
        "AdviceMemoryGrows": mark(
            "The memory of {task} grows by {speed}B a minute and has reached {peak}B of "
            "{limit}B: keep less in memory, or raise the limit"
        ),
        "AdviceMemoryNearlyOut": mark(
            "{task} has used {percent} % of its memory ({peak}B of {limit}B): raise the limit"
        ),
        "AdviceMemoryTooHigh": mark(
            "{type} needs less memory: {limit}B requested for each task, and the largest peak was "
            "{peak}B ({task})"
        ),
    },
}
"""The texts in groups, each with its heading in the reference."""

TEXTS: Mapping[str, Text] = {
    code: text for group in GROUPS.values() for code, text in group.items()
}
