"""`GET /options`: what can be asked for and what fits now; forms are generated from it."""

from __future__ import annotations

import msgspec

from .base import TFClusterHandler, guarded
from .launching import offer


class OptionsHandler(TFClusterHandler):
    """`/options`."""

    @guarded
    async def get(self) -> None:
        """What there is and how much of it is free."""
        here = await self.call(self.service.manager.options)
        form = await offer(self.service)
        self.reply({"options": msgspec.to_builtins(here), **form})


ROUTES = [(r"options", OptionsHandler)]
