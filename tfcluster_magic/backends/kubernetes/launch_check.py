"""What stands against a launch, by what the operator published; and a launch's image.

Promises the operator's own judgement (`kube.offer`): what can never fit is refused before anything
exists; of what may not fit now is said that it may have to wait. The operator decides in the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from ...errors import Problem
from ...i18n import _
from ...kube.api import access
from ...kube.api.resource_amounts import CPU, MEMORY, format_amount
from ...launch_checks import policy_check
from ...launch_checks.kubernetes import LaunchFacts, launch_problems, task_demands
from ...program.snapshots import stored_folder
from ...quota import budgets, ledger, storage
from ...quota.ledger import HoursAccount
from ...quota.preflight import Preflight
from ...spec import Spec, names
from ..base import Options
from . import namespace_access

_IMAGE = ("JUPYTER_IMAGE_SPEC", "JUPYTER_IMAGE")
"""Where KubeSpawner tells a notebook its own image."""
NO_ACCOUNT = HoursAccount()


def with_image(spec: Spec, offer: LaunchFacts) -> Spec:
    """`spec` with the image of this notebook: where it names none, the notebook knows its own, and
    tasks may use that.
    """
    own = next((os.environ[key] for key in _IMAGE if os.environ.get(key)), None)
    if spec.image is not None or own is None or not access.in_pod():
        return spec
    bare = Spec(image=own, lifecycle=spec.lifecycle)
    refused = {p.field for p in policy_check.policy_problems(bare, offer.policy, offer.names)}
    return spec if "spec.image" in refused else replace(spec, image=own)


def check_launch(
    spec: Spec,
    there: Options,
    offer: LaunchFacts,
    account: HoursAccount = NO_ACCOUNT,
    *,
    here: bool,
) -> Preflight:
    """Everything that stands against `spec`, and what it has to wait for; `here`: see `folders`."""
    most, spent, now = account.budget, ledger.daily_sums(account.days), time.time()
    asked = task_demands(spec, offer).values()
    cores = sum(count * demand.requests.get(CPU, 0.0) for count, demand in asked)
    over = budgets.problems(spec, cores, most, spent, now)
    filled = namespace_access.claim_volumes(offer) if here else []
    found = [*over, *_missing_folders(spec, there, here), *launch_problems(spec, offer)]
    found += storage.problems(filled)
    told = budgets.remaining_text(most, spent, now)
    waits = (
        ()
        if found
        else (*budgets.warnings(most, spent, now), *_waiting_warnings(spec, there, offer))
    )
    return Preflight(tuple(found), (*storage.warnings(filled), *waits), (told,) if told else ())


def _waiting_warnings(spec: Spec, there: Options, offer: LaunchFacts) -> Iterator[str]:
    """What there may be too little of now, by what the API server will count for the tasks.

    What is free is published rounded down and says nothing of single nodes and of runs that wait:
    only the operator knows whether it has to wait.
    """
    gpu = offer.policy.gpu_resource
    demands = task_demands(spec, offer).values()
    for key, limit in ((CPU, there.cpu), (MEMORY, there.memory), (gpu, there.gpu)):
        asked = sum(count * demand.requests.get(key, 0.0) for count, demand in demands)
        if not limit.total and asked:
            yield _(
                "it may have to wait: it asks for {asked}, and no node has {resource} now"
            ).format(asked=format_amount(key, asked), resource=key)
        elif asked > limit.free:
            yield _(
                "it may have to wait: it asks for {asked} in all, and about {free} of {total} is "
                "free"
            ).format(
                asked=format_amount(key, asked),
                free=format_amount(key, limit.free),
                total=format_amount(key, limit.total),
            )


def _missing_folders(spec: Spec, there: Options, here: bool) -> list[Problem]:
    """What the tasks would look for in vain, as far as it can be seen from here."""
    found = []
    root = namespace_access.logs_folder(here, there.log_dir)
    if spec.resume_from is not None and root is not None:
        cluster, run = names.parse_ref(spec.resume_from)
        folder = root / cluster / str(run)
        if not folder.is_dir():
            allowed = _("its folder {resume_from} is gone: launch without it").format(
                resume_from=folder
            )
            found.append(Problem("resumeFrom", spec.resume_from, allowed))
    program = spec.program
    if program is not None and program.files is None and here:
        stored = stored_folder(Path.home(), program.sha256)
        if not stored.is_dir():
            allowed = _("its files are no longer in {folder}: launch the program anew").format(
                folder=stored
            )
            found.append(Problem("program", program.source, allowed))
    return found
