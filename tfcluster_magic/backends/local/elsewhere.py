"""What a spec may ask for on Kubernetes and not here, and what to do instead.

Promises that nothing that was asked for is silently left out. Looks at the spec alone.
"""

from __future__ import annotations

from ...errors import Problem
from ...i18n import _, mark
from ...spec import Spec

_INSTEAD = {
    "image": mark("tasks run with a Python of this machine, see --python"),
    "image_pull_secret": mark("nothing is pulled on this machine"),
    "volume": mark("tasks see the folders of this machine as you do"),
    "secret": mark("give the tasks variables with --env"),
    "annotation": mark("there are no pods on this machine"),
    "data_claim": mark("tasks find data in TFCLUSTER_DATA_DIR"),
}


def problems(spec: Spec) -> list[Problem]:
    """Each part of `spec` that only Kubernetes has, called by its option."""
    from ...launch import pod_options  # with what reads programs, which only launches do
    from ...launch.command_line import at
    from ...launch.options import OPTIONS, Kind

    found = []
    for option in OPTIONS:
        if not option.only_kubernetes or not (value := at(spec, option.path)):
            continue
        said = (
            [str(value)] if option.kind is Kind.IMAGE else pod_options.written(option.kind, value)
        )
        allowed = _("only on Kubernetes: {instead}").format(instead=_(_INSTEAD[option.key]))
        found.append(Problem(option.flag, " ".join(said), allowed))
    return found
