"""The places in the file browser of a run's program, folder and output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.server.calls import Api
from support.server.launches import Post, post, root

from tfcluster_magic.server.service import Service, browsed_path

__all__ = ["post", "root"]  # fixtures used by the tests below


async def test_places_of_a_run_are_those_of_the_file_browser(
    post: Post, service: Service, api: Api, page: Any, root: Path
) -> None:
    """Lists and events have the file browser's paths of a run's program, folder and output."""
    events = await page()
    await post("clusters", program="project/train.py", name="digits", options={"workers": 1})
    event = await events.phase("Succeeded")
    places = {"program": "project/train.py", "folder": "project"}
    # without `output`, because it lies outside the file browser's root
    assert event["run"]["places"] == places
    (run,) = (await api("GET", "clusters")).json["runs"]
    assert run["places"] == places
    cluster = service.manager.status("digits")
    inside = msgspec.structs.replace(
        cluster.status, paths={"output": str(root / "log" / "digits" / "1")}
    )
    shown = service.places(msgspec.structs.replace(cluster, status=inside))
    assert shown == {**places, "output": "log/digits/1"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("{root}", ""),
        ("{root}/", ""),
        ("{root}/a b/train.py", "a b/train.py"),
        ("{real}/a/train.py", "a/train.py"),
        ("{root}/a/../b", "b"),
        ("{root}/../b", None),
        ("{root}2/b", None),
        ("{root}/.hidden/b", None),
        ("{root}/a/.b", None),
        ("a/train.py", None),
        ("/", None),
    ],
)
def test_a_path_is_what_the_file_browser_calls_it(
    tmp_path: Path, path: str, name: str | None
) -> None:
    """A place is a path below the root, even if the root is given by its real path. Paths outside
    of the root or in hidden folders have no place.
    """
    real = tmp_path / "real"
    real.mkdir()
    root = tmp_path / "root"
    root.symlink_to(real)
    assert browsed_path(root, path.format(root=root, real=real)) == name
    assert browsed_path(None, path.format(root=root, real=real)) is None
    assert browsed_path(root, f"{root}/.hidden/b", hidden=True) == ".hidden/b"
