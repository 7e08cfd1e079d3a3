"""The schedules of a namespace: TFClusterSchedules, which the operator carries out.

A user may not write a schedule's status. To change the status, for example to pause the schedule,
this module writes a request into the spec. The schedule is then shown as if the operator had
carried out the request already.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable

from msgspec.structs import replace

from ...errors import BackendUnavailable, Conflict, InvalidRequest, NotFound, Problem
from ...i18n import _
from ...kube.api import access
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.objects import schedule_resource
from ...schedules import Schedule, ScheduledLaunch
from ...spec import Spec, names
from ..base import Schedules

RESOURCE = "tfclusterschedules"
TRIES = 10
"""Maximum attempts to write a schedule while others change it."""


class KubernetesSchedules(Schedules):
    """The schedules of a namespace.

    Args:
        api: the connection to the API server.
        namespace: the namespace.
        with_image: returns a spec with the image that a launch from this process gets.
    """

    def __init__(self, api: Api, namespace: str, with_image: Callable[[Spec], Spec]) -> None:
        self._api, self._namespace, self._with_image = api, namespace, with_image

    def list(self) -> list[Schedule]:
        """See `Schedules.list`."""
        try:
            found = self._api.every(path(RESOURCE, self._namespace)).items
        except ApiError as error:
            raise self._explained(error) from None
        now = time.time()
        read = (schedule_resource.read(each, now) for each in found)
        return sorted(read, key=lambda schedule: schedule.name)

    def get(self, name: str) -> Schedule:
        """See `Schedules.get`."""
        return schedule_resource.read(self._find(name), time.time())

    def create(self, schedule: Schedule) -> Schedule:
        """See `Schedules.create`."""
        schedule = replace(schedule, launch=self._launch(schedule.launch))
        body = schedule_resource.write(schedule)
        try:
            made = self._api.create(path(RESOURCE, self._namespace), body, fieldValidation="Strict")
        except ApiError as error:
            if error.reason == "AlreadyExists":
                raise self.taken(schedule.name) from None
            raise self._explained(error) from None
        return schedule_resource.read(made, time.time())

    def change(self, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        """See `Schedules.change`."""
        for _try in range(TRIES):
            found = self._find(name)
            before = schedule_resource.read(found, time.time())
            after = change(before)
            if after.launch != before.launch:
                after = replace(after, launch=self._launch(after.launch))
            operations = schedule_resource.write_change(found, before, after)
            try:
                self._api.patch(path(RESOURCE, self._namespace, name), operations)
            except ApiError as error:
                if error.status == 409:  # the operator has changed it: try again
                    continue
                raise self._explained(error, name) from None
            return after
        text = _("somebody else is changing {name}: try again")
        raise Conflict(text.format(name=name))

    def delete(self, name: str) -> None:
        """See `Schedules.delete`."""
        uid = self._find(name)["metadata"]["uid"]
        try:
            self._api.delete(path(RESOURCE, self._namespace, name), uid=uid)
        except ApiError as error:
            if not error.gone:
                raise self._explained(error, name) from None

    def _find(self, name: str) -> Object:
        if not names.is_valid(name):
            raise self._unknown(name)
        try:
            return self._api.get(path(RESOURCE, self._namespace, name))
        except ApiError as error:
            if error.gone and error.details.get("kind") != "namespaces":
                raise self._unknown(name) from None
            raise self._explained(error, name) from None

    def _launch(self, launch: ScheduledLaunch) -> ScheduledLaunch:
        """Return the launch of a schedule with the image in which its tasks will run. Raises
        InvalidRequest if the schedule tracks its program instead of launching a snapshot.
        """
        if launch.track:
            raise InvalidRequest([self.track_problem()], _("the schedule was refused"))
        return replace(launch, spec=self._with_image(launch.spec))

    def track_problem(self) -> Problem:
        """See `Schedules.track_problem`."""
        allowed = _(
            "on Kubernetes a schedule launches a snapshot: after you changed the program, run "
            "`tfcluster schedule update NAME`"
        )
        return Problem("--track", True, allowed)

    def _unknown(self, name: str) -> NotFound:
        """Return the error for a schedule that does not exist. Raises BackendUnavailable if the
        cluster has no TFClusterSchedules at all.
        """
        if close := difflib.get_close_matches(name, [each.name for each in self.list()], 1):
            text = _("there is no schedule {name}; did you mean {close}?")
            return NotFound(text.format(name=name, close=close[0]))
        text = _("there is no schedule {name}; `tfcluster schedule list` shows all schedules")
        return NotFound(text.format(name=name))

    def _explained(self, error: ApiError, name: str = "") -> Exception:
        if error.gone and error.details.get("kind") != "namespaces":
            return BackendUnavailable(
                _(
                    "this cluster has no TFClusterSchedule: its administrator runs "
                    "`kubectl apply -k k8s/crds` and installs the operator of this version"
                )
            )
        return access.explain_api_error(error, name, server=self._api.server)
