"""The form that is filled in with a run: its values, and notes about what a form cannot express."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from support.server.calls import Api, assert_problem
from support.server.launches import HELLO, SLEEP, Post, ended, post, root

from tfcluster_magic.program import snapshots
from tfcluster_magic.server.service import Service
from tfcluster_magic.spec import TFCluster

__all__ = ["post", "root"]  # fixtures used by the tests below


async def repeated(api: Api, post: Post, service: Service, name: str) -> tuple[TFCluster, Any]:
    """Launch the form of a run unchanged; return the new run and the form."""
    told = (await api("GET", f"clusters/{name}/form")).json
    code, run = await post("clusters", **told["launch"])
    assert code == 201, run
    return await asyncio.to_thread(ended, service, run["cluster"]["metadata"]["name"]), told


async def test_a_cell_is_launched_again_with_all_that_was_said(
    post: Post, service: Service, api: Api
) -> None:
    """A form that is filled in from a run has its text, folder, arguments, counts and options;
    launching it unchanged makes a run with the same spec.
    """
    options = {"workers": 1, "env": {"A": "b\nc"}, "grace": "5s", "restarts": 2, "keep_for": "2h"}
    said = {"cell": HELLO, "folder": "project", "name": "digits", "arguments": ["a b", "--x=1"]}
    await post("clusters", **said, options=options)
    first = await asyncio.to_thread(ended, service, "digits-1")
    again, told = await repeated(api, post, service, "digits")
    assert told["name"] == "digits-1"
    assert told["notes"] == []
    assert again.metadata.name == "digits-2"
    assert again.spec == first.spec


async def test_a_program_is_launched_again_in_the_folder_where_it_ran(
    post: Post, service: Service, api: Api, root: Path
) -> None:
    """The form shows a file by its path in the file browser. It also shows the working folder,
    unless this is the file's own folder.
    """
    launch = service.manager.launch
    await asyncio.to_thread(launch, "project/train.py", ["1"], folder=root, workers=1, name="here")
    first = await asyncio.to_thread(ended, service, "here")
    again, told = await repeated(api, post, service, "here-1")
    assert (told["launch"]["program"], told["launch"]["folder"]) == ("project/train.py", "")
    (note,) = told["notes"]
    assert note.endswith("“Rerun” uses the copy that here-1 ran.")
    assert again.spec == first.spec

    code, _ = await post("clusters", program="project/train.py", name="own", options={"workers": 1})
    assert code == 201
    await asyncio.to_thread(ended, service, "own")
    told = (await api("GET", "clusters/own/form")).json
    assert told["launch"]["program"] == "project/train.py"
    assert "folder" not in told["launch"]


async def test_what_a_launch_cannot_say_is_told(
    post: Post, service: Service, api: Api, root: Path, tmp_path: Path
) -> None:
    """The form has notes about a name in use, an unknown folder, a folder outside of the root, and
    a lost cell.
    """
    await post("clusters", cell=SLEEP, name="busy", options={"workers": 1, "grace": "1s"})
    told = (await api("GET", "clusters/busy/form")).json
    assert "name" not in told["launch"]
    assert told["notes"] == ["busy-1 is still active, so the new run gets another name."]
    assert told["launch"]["kernelspec"]

    await post("clusters", program="shell", name="sh", options={"workers": 1})
    await asyncio.to_thread(ended, service, "sh")
    told = (await api("GET", "clusters/sh/form")).json
    assert told["launch"]["program"] == "shell"
    assert "does not say in which folder shell was" in told["notes"][0]

    outside = tmp_path / "out{side}"
    outside.mkdir()
    long = f"pass\n#{'x' * 70_000}"
    await asyncio.to_thread(
        service.manager.launch, cell=long, name="far", folder=outside, workers=1
    )
    far = await asyncio.to_thread(ended, service, "far")
    told = (await api("GET", "clusters/far/form")).json
    # read from a file in the workspace, because the cell is too long for the record
    assert told["launch"]["cell"] == long
    (note,) = told["notes"]
    assert note.startswith(f"far-1 ran in {outside}, which the file browser does not show: ")
    assert far.spec.program is not None
    workspace = service.manager.backend.workspace()
    shutil.rmtree(snapshots.stored_folder(workspace, far.spec.program.sha256))
    told = (await api("GET", "clusters/far/form")).json
    assert "cell" not in told["launch"]
    assert told["notes"][0].startswith("The text of the cell is gone")


async def test_a_run_without_a_program_and_a_resumed_one(
    post: Post, service: Service, api: Api
) -> None:
    """The form has notes about the notebook of an In-Graph run and about a run resumed from
    checkpoints.
    """
    options = {"mode": "in-graph", "workers": 1, "ps": 0, "idle_timeout": "20m"}
    await post("clusters", name="servers", options=options)
    told = (await api("GET", "clusters/servers/form")).json
    assert told["launch"]["options"] == {
        "mode": "in-graph", "workers": "1", "ps": "0", "idle_timeout": "20m"
    }  # fmt: skip
    assert told["notes"][1:] == ["After the launch, connect your notebook to the new run."]

    await post("clusters", cell=HELLO, name="digits", options={"workers": 1})
    await asyncio.to_thread(ended, service, "digits")
    await post("clusters", "digits", "rerun", resume=True)
    await asyncio.to_thread(ended, service, "digits")
    told = (await api("GET", "clusters/digits/form")).json
    assert told["name"] == "digits-2"
    assert "resumed from the checkpoints of digits-1" in told["notes"][0]
    assert_problem(await api("GET", "clusters/nothing/form"), 404, "there is no run nothing")


async def test_the_kernel_of_a_run_is_chosen(
    post: Post, service: Service, api: Api, jp_data_dir: Path, tmp_path: Path
) -> None:
    """The form names the kernel with the tasks' Python; if there is no such kernel, the form has
    the Python's path.
    """
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    said = {"cell": HELLO, "name": "digits", "options": {"workers": 1, "python": str(python)}}
    await post("clusters", **said)
    first = await asyncio.to_thread(ended, service, "digits")
    told = (await api("GET", "clusters/digits/form")).json
    assert "kernelspec" not in told["launch"]
    assert told["launch"]["options"]["python"] == str(python)
    folder = jp_data_dir / "kernels" / "other"
    folder.mkdir(parents=True)
    spec = {"argv": [str(python)], "display_name": "Other", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    again, told = await repeated(api, post, service, "digits")
    assert told["launch"]["kernelspec"] == "other"
    assert again.spec == first.spec
