"""All that a cluster starts from and that is slow to make: servers, Debian trees, images.

`make kube-build` makes it ahead of time, beside other work; `kube-up` makes what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import build, debian, images


def everything(options: Sequence[str] = ()) -> None:
    """Make what is not in the cache, and the servers of `options` too.

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
