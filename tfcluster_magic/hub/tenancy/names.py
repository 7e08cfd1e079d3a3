"""The namespace of a user: a prefix, and the slug that KubeSpawner makes of the name. Pure.

Promises what KubeSpawner computes for `<prefix>{username}`, since it is its own function: a valid
name of at most 63 characters for any name. Two names give the same only where eight hexadecimal
digits of a hash agree; whose a namespace is, its annotation says, and nobody takes over another's.

Ref: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from ...errors import UsageError
from ...i18n import _

VARIABLE = "TFCLUSTER_TENANT_PREFIX"
DEFAULT_PREFIX = "tfcluster-u-"
SLUG_LENGTH = 48
"""The longest slug that KubeSpawner makes of a user's name in a template."""
_PREFIX = re.compile(r"[a-z][-a-z0-9]{0,13}-")


def prefix(asked: str = "") -> str:
    """How all tenants' namespaces begin: as asked, by TFCLUSTER_TENANT_PREFIX, or the default.

    Raises UsageError.
    """
    said = asked or os.environ.get(VARIABLE) or DEFAULT_PREFIX
    if not _PREFIX.fullmatch(said):
        text = _(
            "the prefix of namespaces ({variable}) is {said!r}; it may have at most 15 small "
            "letters, digits and hyphens, begins with a letter and ends with a hyphen, such as "
            "{default}"
        )
        raise UsageError(text.format(variable=VARIABLE, said=said, default=DEFAULT_PREFIX))
    return said


def namespace(user: str, start: str = DEFAULT_PREFIX) -> str:
    """The namespace of the user whom the hub calls `user`, below this prefix."""
    return f"{start}{_safe_slug()(user, max_length=SLUG_LENGTH)}"


@cache
def _safe_slug() -> Callable[..., str]:
    """KubeSpawner's function, without KubeSpawner: its package takes seconds and 100 MB."""
    package = find_spec("kubespawner")
    assert package is not None
    assert package.submodule_search_locations
    file = Path(package.submodule_search_locations[0]) / "slugs.py"
    spec = spec_from_file_location("kubespawner_slugs", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., str] = module.safe_slug
    return found
