"""Everything that a cluster needs and that is slow to make: servers, Debian trees, images. `make
kube-build` makes it ahead of time; `kube-up` makes what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import build, debian, images


def everything(options: Sequence[str] = ()) -> None:
    """Make everything that is missing in the cache, including the servers of `options`.

    Raises:
        NodeError: the first that cannot be made; the message names it.
    """
    for name in ("node", "builder", "python"):
        debian.tree(name)
    build.build()
    if options:
        build.build(options)
    for name in images.NAMES:
        images.build(name)
