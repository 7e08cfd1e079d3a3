"""The panel, whose buttons launch and stop real runs; only the kernel's side is tested, so no
browser is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.slow_program import SlowProgram

from tfcluster_magic import ClusterManager
from tfcluster_magic.notebook.panel import MOST_ROWS, Panel, RunRow
from tfcluster_magic.output.run_card import MIME_TYPE
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.runs.watcher import RunWatcher
from tfcluster_magic.spec import Phase

SLEEP = "import time\nprint('<b>up</b>', flush=True)\ntime.sleep(600)\n"
WaitFor = Callable[..., None]


@pytest.fixture
def manager(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterManager]:
    """A manager in a folder with programs; its runs are stopped at the end."""
    folder = own_folders / "work"
    folder.mkdir()
    (folder / "sleep.py").write_text(SLEEP)
    (folder / "hello.py").write_text("print('hello')\n")
    monkeypatch.chdir(folder)
    manager = ClusterManager()
    yield manager
    for run in manager.list(all_runs=True):
        manager.stop(run.metadata.name)
    for run in manager.list(all_runs=True):
        manager.wait(run.metadata.name, 180, until=Until.RELEASED)


@pytest.fixture
def panel(manager: ClusterManager) -> Iterator[Panel]:
    """A panel that is closed at the end."""
    panel = Panel(manager, RunWatcher(manager))
    yield panel
    panel.close()


def rows(panel: Panel) -> dict[str, RunRow]:
    """Return the visible rows by the run's name."""
    return panel.runs._rows


def asked(row: RunRow) -> list[str]:
    """Return the texts of the question with which a row asks the user for confirmation, and of its
    buttons.
    """
    return [getattr(w, "description", "") or w.value for w in row._question.children]


def test_a_form_that_is_filled_in_launches_and_the_run_appears(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """The form launches the shown options, and the run appears in the list."""
    panel.form.program.value = "sleep.py"
    panel.form.fields["workers"].value = "1"
    wait_for(lambda: not panel.form.launch.disabled, "the form can be sent")
    assert "%tfcluster launch --workers 1 sleep.py" in panel.form.line.value

    panel.form.launch.click()

    wait_for(lambda: "sleep-1" in rows(panel), "the run is in the list")
    assert manager.status("sleep-1").spec.replicas.total == 1
    wait_for(lambda: "launched sleep-1" in panel._message.value)
    wait_for(lambda: not panel.form.launch.disabled, "it can be sent again")


def test_a_launch_under_way_cannot_be_sent_twice(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor, slow_program: SlowProgram
) -> None:
    """While a launch downloads its program, typing does not enable the launch button again."""
    panel.form.program.value = slow_program.url
    wait_for(lambda: not panel.form.launch.disabled, "a URL is not fetched while one types")
    panel.form.launch.click()
    wait_for(slow_program.asked.is_set)
    panel.form.name.value = "other"
    wait_for(lambda: "--name other" in panel.form.line.value)
    assert panel.form.launch.disabled

    slow_program.answer.set()
    wait_for(lambda: not panel.form.launch.disabled, "it can be sent again")
    assert len(manager.list()) == 1


def test_a_name_that_was_given_again_is_not_stopped_by_an_old_question(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor, own_folders: Path
) -> None:
    """A confirmed deletion applies only to the run for which the panel asked. A later run with the
    same name, which can exist only because the file of used run numbers (hours.json) was deleted,
    stays.
    """
    manager.launch("hello.py", workers=1, name="twice")
    manager.wait("twice-1", 180, until=Until.RELEASED)
    wait_for(lambda: "twice-1" in rows(panel))
    row = rows(panel)["twice-1"]
    row.delete.click()
    manager.delete("twice-1", with_logs=True)
    (own_folders / "state" / "hours.json").unlink()
    manager.launch("sleep.py", workers=1, name="twice")
    row._question.children[1].click()

    wait_for(lambda: "another run is called twice-1 now" in panel._message.value)
    assert manager.status("twice-1").active


def test_deleting_a_run_that_goes_on_says_that_it_is_stopped(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """Before an active run is deleted, the panel asks, and says that the run is stopped first."""
    manager.launch("sleep.py", workers=1)
    wait_for(lambda: "sleep-1" in rows(panel))
    row = rows(panel)["sleep-1"]
    row.delete.click()
    assert asked(row)[0] == "Delete sleep-1? It still runs: it is stopped first."


def test_a_form_that_would_be_refused_says_so_and_cannot_be_sent(
    panel: Panel, wait_for: WaitFor
) -> None:
    """Problems of the form are shown while the user types, and the typed text stays."""
    panel.form.program.value = "nowhere.py"
    panel.form.fields["workers"].value = "many"
    wait_for(lambda: "nowhere.py" in panel.form.verdict.value)

    assert "write a whole number" in panel.form.verdict.value
    assert panel.form.launch.disabled
    assert panel.form.program.value == "nowhere.py"


def test_no_two_fields_of_the_form_have_the_same_label(panel: Panel) -> None:
    """The fields for a worker's and for a parameter server's memory have different labels."""
    labels = [field.description for field in panel.form.fields.values()]
    assert len(labels) == len(set(labels))
    assert {"Memory", "worker · Memory", "ps · Memory"} <= set(labels)


def test_an_open_quote_in_the_arguments_is_named(panel: Panel, wait_for: WaitFor) -> None:
    """Arguments are parsed like words in a shell, so an open quote is a problem."""
    panel.form.program.value = "hello.py"
    panel.form.arguments.value = "--name 'x"
    wait_for(lambda: "is not closed" in panel.form.verdict.value)


def test_what_code_launched_is_shown_and_can_be_stopped(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """A run launched by code appears in the list; its stop button asks first and does not block the
    panel.
    """
    manager.launch("sleep.py", workers=1)
    wait_for(lambda: "sleep-1" in rows(panel))
    row = rows(panel)["sleep-1"]

    row.stop.click()
    assert asked(row) == ["Stop sleep-1?", "Stop it", "Cancel"]
    assert manager.status("sleep-1").spec.stop is None
    row._question.children[1].click()

    wait_for(lambda: manager.status("sleep-1").status.phase is Phase.STOPPED)
    wait_for(lambda: row.rerun in row._buttons.children, "an ended run can be launched again")
    assert row._question.children == ()


def test_an_answer_no_does_nothing(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """If the user answers with Cancel, nothing happens to the run."""
    manager.launch("sleep.py", workers=1)
    wait_for(lambda: "sleep-1" in rows(panel))
    row = rows(panel)["sleep-1"]
    row.delete.click()
    row._question.children[2].click()

    assert row._question.children == ()
    assert manager.status("sleep-1").active


def test_a_run_that_is_deleted_elsewhere_leaves_every_panel(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """A change appears in every panel, whoever made it."""
    other = Panel(manager, panel._watcher)
    try:
        manager.launch("hello.py", workers=1)
        wait_for(lambda: "hello-1" in rows(panel) and "hello-1" in rows(other))
        manager.wait("hello-1", 180, until=Until.RELEASED)
        manager.delete("hello-1")
        wait_for(lambda: not rows(panel) and not rows(other))
    finally:
        other.close()


def test_logs_are_shown_as_text(panel: Panel, manager: ClusterManager, wait_for: WaitFor) -> None:
    """Markup in a program's output is shown as text."""
    manager.launch("sleep.py", workers=1)
    wait_for(lambda: "sleep-1" in rows(panel))
    row = rows(panel)["sleep-1"]
    row.logs.click()

    wait_for(lambda: "&lt;b&gt;up&lt;/b&gt;" in row._below.value)
    assert "<b>up" not in row._below.value


def test_resources_are_shown_instead_of_logs(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """The resources button shows the table of `%tfcluster top` below the row, instead of the logs;
    a second click hides the table.
    """
    manager.launch("sleep.py", workers=1)
    wait_for(lambda: "sleep-1" in rows(panel))
    row = rows(panel)["sleep-1"]
    row.logs.click()
    wait_for(lambda: "up" in row._below.value)
    row.resources.click()

    wait_for(lambda: "TASK" in row._below.value and "MEMORY" in row._below.value, within=60)
    assert (row.logs.description, row.resources.description) == ("Logs", "Hide resources")
    wait_for(lambda: not row.resources.disabled)
    row.resources.click()
    wait_for(lambda: row._below.value == "")
    assert row.resources.description == "Resources"


def test_a_button_that_is_refused_says_why(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """If an action of a button is refused, the panel shows the reason as a sentence, not as a
    traceback.
    """
    (Path.cwd() / "gone.py").write_text("print(1)\n")
    manager.launch("gone.py", workers=1)
    manager.wait("gone-1", 180, until=Until.RELEASED)
    wait_for(lambda: "gone-1" in rows(panel))
    row = rows(panel)["gone-1"]
    panel._end()  # the panel no longer gets updates
    manager.delete("gone-1")
    row.rerun.click()

    wait_for(lambda: "there is no run gone-1" in panel._message.value)
    assert not row.rerun.disabled


def test_tensorboard_is_shown_as_the_magic_shows_it(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """With the JupyterLab extension, TensorBoard opens in a tab; without the extension, a link is
    shown.
    """
    manager.launch("hello.py", workers=1)
    wait_for(lambda: "hello-1" in rows(panel))
    row = rows(panel)["hello-1"]
    row.board.click()
    try:
        wait_for(lambda: row._board.outputs, "TensorBoard is there")
        (shown,) = row._board.outputs
        assert shown["data"][MIME_TYPE]["refs"] == ["hello-1"]
        assert "http://127.0.0.1" in shown["data"]["text/html"]
    finally:
        manager.boards.stop()


def test_a_long_list_shows_the_newest_and_a_filter_finds_the_others(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """Hundreds of runs do not create hundreds of widgets: the panel shows the newest runs, and a
    filter finds the others.
    """
    count = MOST_ROWS + 3
    for number in range(count):
        manager.launch("hello.py", workers=1, name=f"run-{chr(97 + number)}")
    wait_for(lambda: panel.runs._more.value.startswith("3 more"), within=60)
    assert len(rows(panel)) == MOST_ROWS
    assert "run-a-1" not in rows(panel)

    panel.runs.filter.value = "run-a"
    wait_for(lambda: list(rows(panel)) == ["run-a-1"])


def test_a_closed_panel_leaves_no_thread_of_its_own(
    manager: ClusterManager, wait_for: WaitFor
) -> None:
    """When the last panel is closed, the watcher's thread ends."""
    panel = Panel(manager, RunWatcher(manager))
    assert any(t.name.startswith("tfcluster-watcher") for t in threading.enumerate())
    panel.close()
    wait_for(lambda: not any(t.name.startswith("tfcluster-") for t in threading.enumerate()))


def test_an_exported_document_shows_the_table(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """The widget has a text form for pages without widgets."""
    manager.launch("hello.py", workers=1)
    wait_for(lambda: "hello-1" in rows(panel))
    shown = panel._repr_mimebundle_()

    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "hello-1" in shown["text/plain"]
    assert "hello-1" in shown["text/html"]


def test_the_empty_list_says_what_a_cluster_is(panel: Panel) -> None:
    """The empty list explains what a cluster is."""
    (hint,) = panel.runs._body.children or [None]
    assert hint is not None
    assert "set of TensorFlow processes" in hint.value


def test_a_project_offers_its_configurations(
    panel: Panel, manager: ClusterManager, wait_for: WaitFor
) -> None:
    """The form has a field for configurations only if the program is a project. The form launches
    with the chosen configuration, and its command line shows the choice.
    """
    Path("digits").mkdir()
    Path("digits/tfcluster.yaml").write_text(
        "program: train.py\nworkers: 1\nconfigurations:\n  two: {workers: 2}\n"
    )
    Path("digits/train.py").write_text("print('hello')\n")
    form = panel.form
    assert form.config.layout.display == "none"
    form.program.value = "digits"
    wait_for(lambda: form.config.layout.display == "")
    assert [name for name, _value in form.config.options] == ["", "two"]
    form.config.value = "two"
    wait_for(lambda: "--config two" in form.line.value and not form.launch.disabled)
    form.launch.click()
    wait_for(lambda: len(rows(panel)) == 1)
    (run,) = manager.list()
    assert run.spec.replicas.worker.count == 2
    form.program.value = "hello.py"
    wait_for(lambda: form.config.layout.display == "none" and form.config.value == "")
    wait_for(lambda: "--config" not in form.line.value)
