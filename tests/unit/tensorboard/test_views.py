"""Views of TensorBoards: several runs under their names, and folders."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import event_writer as ev
from support.http_client import get
from support.polling import wait_until

from tfcluster_magic import ClusterManager, cli
from tfcluster_magic.output.run_card import MIME_TYPE, board_bundle
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.tensorboard import process, views
from tfcluster_magic.tensorboard.views import view_of_folder, view_of_runs


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """Yield a state folder; stop its boards afterwards."""
    yield tmp_path / "state"
    for board in process.list_boards(tmp_path / "state"):
        process.stop(board.folder, state_dir=tmp_path / "state")


def output(folder: Path, steps: int = 3) -> str:
    """Create an output folder with events."""
    events = [ev.event(step, {"loss": 1 / step}) for step in range(1, steps)]
    ev.event_file(folder).write_bytes(ev.version() + b"".join(events))
    return str(folder)


def test_several_runs_are_shown_under_their_names(state: Path, tmp_path: Path) -> None:
    """A board on several runs shows each run under its name, with later events, and nothing
    else.
    """
    first, second = output(tmp_path / "log/digits/1"), output(tmp_path / "log/cnn/4")
    output(tmp_path / "log/other/1")
    output(tmp_path / "log/cnn/4/eval")
    view = view_of_runs({"digits-1": first, "cnn-4": second}, state_dir=state)
    assert view.title == "cnn-4, digits-1"
    board = process.open(view.folder, exact=True, shown=view.shown, state_dir=state)
    served = lambda: json.loads(get(board.url + "data/runs"))  # noqa: E731
    wait_until(lambda: served() == ["cnn-4", "cnn-4/eval", "digits-1"], "not these runs")
    assert json.loads(get(board.url + "data/environment"))["data_location"] == view.title

    with ev.event_file(Path(first)).open("ab") as file:
        file.write(ev.event(77, {"loss": 0.1}))
    output(Path(second) / "late")
    scalars = f"{board.url}data/plugin/scalars/scalars?run=digits-1&tag=loss"
    wait_until(lambda: [s for _t, s, _v in json.loads(get(scalars))][-1:] == [77], "no new point")
    wait_until(lambda: "cnn-4/late" in served(), "no new folder")


def test_the_same_wish_is_the_same_view(state: Path, tmp_path: Path) -> None:
    """The same runs in another order give the same view; other runs give another view. A view is
    found again by its id.
    """
    runs = {name: output(tmp_path / name) for name in ("a-1", "b-1", "c-1")}
    pair = {name: runs[name] for name in ("b-1", "a-1")}
    view = view_of_runs(pair, state_dir=state)
    assert view_of_runs(dict(reversed(pair.items())), state_dir=state) == view
    assert view_of_runs(runs, state_dir=state).id != view.id
    assert views.find_view(view.id, state_dir=state) == view
    assert view_of_runs({"a-1": runs["a-1"]}, state_dir=state).title == "a-1"
    link = tmp_path / "link"
    link.symlink_to(runs["a-1"])
    assert (
        view_of_folder(link, state_dir=state).id == view_of_folder(runs["a-1"], state_dir=state).id
    )
    assert views.find_view("../../etc", state_dir=state) is None


def test_a_run_that_moved_is_shown_where_it_is(state: Path, tmp_path: Path) -> None:
    """A view's link that leads elsewhere is corrected when the view is requested again."""
    runs = {name: output(tmp_path / name) for name in ("a-1", "b-1")}
    view = view_of_runs(runs, state_dir=state)
    link = Path(view.folder) / "a-1"
    link.unlink()
    link.symlink_to("/etc")
    assert view_of_runs(runs, state_dir=state) == view
    assert os.readlink(link) == runs["a-1"]


def test_old_views_are_forgotten(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the most recently used views are stored. Older views are deleted, but the runs that they
    show are not.
    """
    monkeypatch.setattr(views, "MOST_VIEWS", 2)
    folders = {name: output(tmp_path / name) for name in ("a-1", "b-1", "c-1")}
    old = view_of_runs(folders, state_dir=state)
    path = state / "tensorboard" / "views" / f"{old.id}.json"
    os.utime(path, (1, 1))
    for name in ("a-1", "b-1"):
        view_of_folder(folders[name], state_dir=state)
    assert [v.title for v in views.stored_views(state_dir=state)] == ["b-1", "a-1"]
    assert not Path(old.folder).exists()
    assert all(list(Path(folder).iterdir()) for folder in folders.values())


@pytest.fixture
def runs(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield two runs, `one-1` and `two-1`, that have ended; stop their boards afterwards."""
    monkeypatch.chdir(own_folders)
    manager = ClusterManager()
    for name in ("one", "two"):
        manager.launch(cell="print('hello')", name=name, workers=1, ps=0)
    for name in ("one", "two"):
        manager.wait(name, 180, until=Until.RELEASED)
    yield
    manager.boards.stop()


def say(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the output of `tfcluster` with these arguments."""
    capfd.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["tensorboard", *words])
    return "".join(reversed(capfd.readouterr()))


@pytest.mark.usefixtures("runs")
def test_deleting_output_ends_the_boards_on_it() -> None:
    """`delete --with-logs` ends a board that shows only the deleted run, and the board's tab cannot
    start it again. A board that also shows another run continues.
    """
    manager = ClusterManager()
    alone = manager.boards.view("one-1")
    manager.boards.open(alone)
    both = manager.boards.open(manager.boards.view("one-1", "two-1"))
    manager.delete("one-1", with_logs=True)
    assert manager.boards.living() == [both]
    assert manager.boards.find(alone.id) is None
    manager.delete("two-1")
    assert manager.boards.living() == [both], "the output of two-1 stays"


def test_the_command_opens_shares_and_ends_boards(
    runs: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """`tfcluster tensorboard` opens a board on one, several or all runs, and `--stop` ends it."""
    said = say(capfd, "one")
    url = said.split()[-1]
    assert said.startswith("TensorBoard of one-1:")
    assert say(capfd, "one-1").split()[-1] == url
    assert ClusterManager().tensorboard("one").url == url

    both = say(capfd, "two", "one")
    assert both.startswith("TensorBoard of one-1, two-1:")
    assert both.split()[-1] != url
    assert "one-1 has ended" in say(capfd, "--stop", "one")
    assert "one-1 is not running" in say(capfd, "--stop", "one")
    assert len(ClusterManager().boards.living()) == 1
    assert "TensorBoard of one-1, two-1 has ended" in say(capfd, "--stop")
    assert "No TensorBoard is running." in say(capfd, "--stop")
    assert "nobody" in say(capfd, "nobody")


def test_a_cell_shows_a_board_as_a_tab_and_as_a_link() -> None:
    """The output of a cell names the runs for the JupyterLab extension, and has a link for other
    readers.
    """
    made = board_bundle("http://127.0.0.1:1/x/", "TensorBoard of a<b>", ["a-1"])
    assert made[MIME_TYPE]["kind"] == "TensorBoard"
    assert made[MIME_TYPE]["refs"] == ["a-1"]
    assert made[MIME_TYPE]["at"] == pytest.approx(time.time(), abs=60)
    assert 'href="http://127.0.0.1:1/x/"' in made["text/html"]
    assert "a&lt;b&gt;" in made["text/html"]
