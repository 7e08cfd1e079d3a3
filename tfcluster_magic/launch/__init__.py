"""Launches: from user input to a validated request, the same for every backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..spec import Message, ScheduledRun, Spec

PROJECT_FILE = "tfcluster.yaml"
"""The file that makes a folder a project."""


@dataclass(frozen=True)
class ProjectUse:
    """The settings that a launch took from the file of the project in `folder`, a full path.

    `settings` are the lines that were used, such as `workers: 4`; `replaced` are the keys of the
    file that an option of the launch overrides. The record keeps all this as one message.
    """

    folder: str
    config: str | None
    settings: tuple[str, ...]
    replaced: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The Python keys of the options that the file sets."""
        named = (*(each.partition(":")[0] for each in self.settings), *self.replaced)
        return frozenset(name.replace("-", "_") for name in named)

    def message(self) -> Message:
        """Return the message about these settings, for the launch and for the record."""
        here = {"settings": list(self.replaced)}
        file, settings = str(Path(self.folder, PROJECT_FILE)), list(self.settings)
        replaced = Message("ReplacedHere", here) if self.replaced else ""
        if self.config is None:
            return Message(
                "FromProject", {"file": file, "settings": settings, "replaced": replaced}
            )
        params = {"file": file, "config": self.config, "settings": settings, "replaced": replaced}
        return Message("FromConfiguration", params)

    @classmethod
    def of(cls, inferred: Iterable[Message]) -> ProjectUse | None:
        """Return the `ProjectUse` that was stored as a message among the inferences in a run's
        record; None if there is none.
        """
        for told in inferred:
            if told.code not in ("FromProject", "FromConfiguration"):
                continue
            params = told.params
            settings, replaced = params.get("settings"), params.get("replaced")
            here = replaced.params.get("settings") if isinstance(replaced, Message) else ()
            config = params.get("config")
            return cls(
                str(Path(str(params.get("file", ""))).parent),
                None if config is None else str(config),
                _texts(settings),
                _texts(here),
            )
        return None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


@dataclass(frozen=True)
class LaunchRequest:
    """A request to a backend for a launch; its spec is validated.

    `cluster` is the name of the cluster. If the user gave the name (`name_given`), the launch is
    refused while the name is in use. A derived name gets the next free letter instead (`train`,
    `train-b`, ...). `inferred` lists the parts of the spec that were inferred from the program. A
    launch by a schedule has `scheduled` and the run number `run`. If a run with this number and due
    time exists, the launch is not repeated.
    """

    cluster: str
    spec: Spec
    name_given: bool = True
    owner: str = ""
    warnings: tuple[str, ...] = field(default=())
    inferred: tuple[Message, ...] = field(default=())
    run: int | None = None
    scheduled: ScheduledRun | None = None
