"""The parts of a cluster that are slow to make: servers, Debian trees, images. `make kube-build`
makes them ahead of time; `kube-up` makes the missing ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import build, debian, images


def everything(options: Sequence[str] = ()) -> None:
    """Make everything that is missing in the cache, including the servers of `options`.

    Raises:
        NodeError: a part cannot be made; the message names the first one.
    """
    for name in ("node", "builder", "python"):
        debian.tree(name)
    build.build()
    if options:
        build.build(options)
    for name in images.NAMES:
        images.build(name)
