"""Routes of notifications: each calls one method of `manager.notifications`.

Rules are returned as `PublicRule`s. No answer contains a secret, and no error message does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import InvalidRequest, Problem
from ..i18n import _
from ..notifications import Delivery, Occasion, PublicRule, WebhookFormat
from ..spec import Model
from .base import TFClusterHandler, guarded
from .worker import LAUNCH_WITHIN

if TYPE_CHECKING:
    from ..runs.notifications import NotificationVerbs


class NotificationRuleBody(Model, frozen=True, kw_only=True):
    """A new rule: its events, and its receiver, which is `webhook` or `mail`."""

    name: str
    on: tuple[Occasion, ...] = (Occasion.FAILED,)
    webhook: Annotated[str, Meta(max_length=2000, description="URL to post to")] | None = None
    mail: Annotated[str, Meta(max_length=254, description="address to write to")] | None = None
    format: (
        Annotated[WebhookFormat, Meta(description="what the receiver expects; absent: by its host")]
        | None
    ) = None
    secret: Annotated[str, Meta(max_length=200, description="signs messages")] = ""
    clusters: Annotated[tuple[str, ...], Meta(description="only runs of these names")] = ()
    queued_longer_than: (
        Annotated[float, Meta(gt=0, description="seconds; then `queued` is one of `on`")] | None
    ) = None
    lab: (
        Annotated[
            str, Meta(max_length=2000, description="address of JupyterLab; absent: by the hub")
        ]
        | None
    ) = None
    output: Annotated[bool, Meta(description="include the last printed lines")] = True


NOTIFICATION_MODELS = (NotificationRuleBody, PublicRule, Delivery)


class NotificationRoute(TFClusterHandler):
    """The base class of the routes of notifications."""

    async def verbs(self) -> NotificationVerbs:
        """Return `manager.notifications`. The attribute is read in a thread, because the first
        access imports many modules.
        """
        return await self.call(lambda: self.service.manager.notifications)

    def read_rule(self) -> dict[str, Any]:
        """Read a new rule from the request body, and return it as arguments of
        `NotificationVerbs.add`.

        Raises:
            InvalidRequest: the rule is invalid. The error repeats no value, because a value may be
                a secret.
        """
        try:
            body = self.read(NotificationRuleBody)
        except InvalidRequest as error:
            hidden = [Problem(each.field, "…", each.allowed) for each in error.problems]
            raise InvalidRequest(hidden, _("the rule was refused")) from None
        words = msgspec.structs.asdict(body)
        words["on"] = [each.value for each in body.on]
        words["format"] = body.format.value if body.format else None
        return words


class NotificationRulesHandler(NotificationRoute):
    """`/notifications/rules`."""

    @guarded
    async def get(self) -> None:
        """Answer with all rules, without secrets."""
        found = await self.call((await self.verbs()).list)
        self.reply({"rules": msgspec.to_builtins(found)})

    @guarded
    async def post(self) -> None:
        """Add a rule."""
        words = self.read_rule()
        made = await self.call((await self.verbs()).add, within=LAUNCH_WITHIN, **words)
        self.reply(msgspec.to_builtins(made), 201)


class NotificationRuleHandler(NotificationRoute):
    """`/notifications/rules/{name}`."""

    @guarded
    async def delete(self, name: str) -> None:
        """Remove a rule; its unsent messages are dropped."""
        await self.call((await self.verbs()).remove, name, within=LAUNCH_WITHIN)
        self.set_status(204)
        self.finish()


class NotificationTestHandler(NotificationRoute):
    """`/notifications/rules/{name}/test`."""

    @guarded
    async def post(self, name: str) -> None:
        """Send a message to the receiver of a rule now, once."""
        rule = await self.call((await self.verbs()).test, name, within=LAUNCH_WITHIN)
        self.reply(msgspec.to_builtins(rule))


class NotificationHistoryHandler(NotificationRoute):
    """`/notifications/history`."""

    @guarded
    async def get(self) -> None:
        """Answer with the states of messages, newest first; with `?run=`, only those about this
        run, or about all runs and the schedule of this name.
        """
        run = self.get_query_argument("run", None)
        found = await self.call((await self.verbs()).history, run)
        self.reply({"deliveries": msgspec.to_builtins(list(found))})


ROUTES = [
    (r"notifications/rules", NotificationRulesHandler),
    (r"notifications/rules/([^/]+)", NotificationRuleHandler),
    (r"notifications/rules/([^/]+)/test", NotificationTestHandler),
    (r"notifications/history", NotificationHistoryHandler),
]
