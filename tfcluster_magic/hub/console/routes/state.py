"""What the routes of the console share."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from ..archives import Archives
from ..audit import AuditLog
from ..class_import import Importing
from ..hub_users import HubUsers
from ..sites.base import World
from ..sites.looks import Looks
from ..sites.site import Nowhere, Site
from ..stored import Stored


@dataclass
class Console:
    """What the routes share. `bar` is title and address of each page."""

    site: World
    audit: AuditLog
    prefix: str
    hub: str
    site_policy: Site = field(default_factory=Nowhere)
    archives: Archives | None = None
    started: str = field(default_factory=lambda: secrets.token_hex(8))
    bar: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run_cache = Looks(self.site)
        self.people = HubUsers()
        self.importing = Importing()
        self.storage_cache = Stored(self.site)
