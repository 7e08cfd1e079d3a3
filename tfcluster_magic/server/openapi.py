"""The description of all routes, with the schemas of the models as msgspec has them.

`openapi.yaml` says what is special to HTTP; what a run is, only the models say. Together they are
the document that `GET /openapi.json` gives.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ..backends.base import Options
from ..spec import TFCluster
from .base import TFClusterHandler, guarded
from .kernelspecs import Kernel
from .launching import LaunchBody, RerunBody
from .proxy import BoardBody
from .runs import StopBody

FILE = Path(__file__).with_name("openapi.yaml")
MODELS = (TFCluster, Options, LaunchBody, RerunBody, StopBody, BoardBody, Kernel)
_REF = "#/components/schemas/{name}"


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """The whole description, OpenAPI 3.1."""
    import yaml

    described: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
    _, models = msgspec.json.schema_components(MODELS, ref_template=_REF)
    described["components"]["schemas"] |= models
    return described


class OpenAPIHandler(TFClusterHandler):
    """`/openapi.json`."""

    @guarded
    async def get(self) -> None:
        """The description of all routes."""
        self.reply(await self.call(document))


ROUTES = [(r"openapi\.json", OpenAPIHandler)]
