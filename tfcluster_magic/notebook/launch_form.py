"""The launch form of the panel, and the threads in which button actions run.

The form has exactly the options of the command line. An option whose field is empty is left out.
Before a launch is sent, the form shows why it would be refused. The form keeps what the user typed,
even if a launch is refused. `ClusterManager` checks the options and launches.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from ..errors import TFClusterError
from ..i18n import _
from ..launch.launch_as_command import launch_argv, magic_line
from ..launch.options import OPTIONS, Kind, Option
from ..launch.project import complete_configs
from ..lifecycle.messages import sentences
from ..runs.manager import ClusterManager
from ..spec import Message, Mode


class ButtonActions:
    """Runs button actions in threads. `tell(sentence, is_error)` shows the user the result of an
    action as a sentence.
    """

    def __init__(self, tell: Callable[[str, bool], None]) -> None:
        self._tell = tell

    def on(
        self, button: Any, action: Callable[[], str | None], after: Callable[[], None] | None = None
    ) -> None:
        """Run `action` when `button` is pressed; `action` may return a sentence to show. The button
        is disabled while the action runs. Afterwards, `after` sets the button's state; without
        `after`, the button is enabled.
        """

        def pressed(_button: Any) -> None:
            if button.disabled:  # ignores a second press that arrived late
                return
            button.disabled = True
            self.do(action, after or (lambda: setattr(button, "disabled", False)))

        button.on_click(pressed)

    def do(
        self, action: Callable[[], str | None], after: Callable[[], None] = lambda: None
    ) -> None:
        """Run `action` in a thread; afterwards run `after`, even if `action` fails."""

        def work() -> None:
            try:
                told = action()
                if told is not None:
                    self._tell(told, False)
            except TFClusterError as refusal:
                self._tell(str(refusal), True)
            except Exception as error:  # noqa: BLE001 - nobody would see a thread's traceback
                self._tell(f"{type(error).__name__}: {error}", True)
            finally:
                after()

        threading.Thread(target=work, name="tfcluster-panel", daemon=True).start()


TYPING_PAUSE = 0.4
"""Seconds without a keystroke after which the form is checked."""
_FIRST = ("workers", "ps")
_WIDE = widgets.Layout(width="544px", max_width="100%")
_FIELD = widgets.Layout(width="270px")
_LABELS = {"description_width": "160px"}
_OF_TYPE = 4  # parts of an option's path, such as replicas, ps, resources, memory
_SHORT = 12  # characters that fit into a field


class LaunchForm:
    """The launch form: a field for each option, the result of its check, and the launch button."""

    def __init__(self, manager: ClusterManager, background: ButtonActions) -> None:
        self._manager = manager
        self._launching = False
        self._touched = False
        self._timer: threading.Timer | None = None
        self._latest = 0
        self.mode = widgets.ToggleButtons(
            options=[
                (_("Run my program on every worker"), Mode.BETWEEN_GRAPH.value),
                (_("Use the cluster from this notebook"), Mode.IN_GRAPH.value),
            ],
            style={"button_width": "auto"},
            layout=widgets.Layout(margin="2px 2px 10px"),
        )
        self.program = widgets.Text(
            description=_("Program"),
            placeholder=_("train.py, a folder with run.sh, or a URL"),
            layout=_WIDE,
            style=_LABELS,
            continuous_update=True,
        )
        self.arguments = widgets.Text(
            description=_("Arguments"),
            placeholder="--epochs 3",
            layout=_WIDE,
            style=_LABELS,
        )
        self.config = widgets.Dropdown(
            options=[("", "")],
            description=_("Configuration"),
            tooltip=_("configuration of a project: of a folder with tfcluster.yaml"),
            layout=widgets.Layout(width="544px", max_width="100%", display="none"),
            style=_LABELS,
        )
        self.name = widgets.Text(
            description=_("Name"), placeholder=_("from the program"), layout=_WIDE, style=_LABELS
        )
        self.fields: Mapping[str, Any] = {
            option.key: _field(option)
            for option in OPTIONS
            if option.key != "mode" and not (manager.backend.is_here and option.only_kubernetes)
        }
        self.verdict = widgets.HTML()
        self.line = widgets.HTML()
        self.launch = widgets.Button(
            description=_("Launch"), icon="play", button_style="primary", disabled=True
        )
        background.on(self.launch, self._launch, self._launch_is_over)
        said = (self.mode, self.program, self.config, self.arguments, self.name)
        for field in (*said, *self.fields.values()):
            field.observe(lambda _change: self._typed(), "value")
        self.widget = widgets.VBox(self._laid_out())
        self._background = background
        self._show_program()
        self._changed()

    def close(self) -> None:
        """Stop checking the form."""
        if self._timer is not None:
            self._timer.cancel()
        self._latest += 1

    def launch_request(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return two sets of arguments for `ClusterManager.launch`: the program with its arguments,
        the name and the configuration; and the options.

        Raises:
            TFClusterError: the arguments cannot be split into words.
        """
        runs_program = self.mode.value == Mode.BETWEEN_GRAPH.value
        try:
            arguments = shlex.split(self.arguments.value) if runs_program else []
        except ValueError as error:
            raise TFClusterError(
                _("Arguments: {error}: a quote or backslash is not closed").format(error=error)
            ) from None
        what: dict[str, Any] = {
            "program": (self.program.value.strip() or None) if runs_program else None,
            "arguments": arguments,
            "name": self.name.value.strip() or None,
            "config": (self.config.value or None) if runs_program else None,
        }
        options = {key: said for key, f in self.fields.items() if (said := _field_value(f))}
        if not runs_program:
            options["mode"] = self.mode.value
        return what, options

    def _laid_out(self) -> list[Any]:
        first = widgets.HBox([self.fields[key] for key in _FIRST])
        others = [field for key, field in self.fields.items() if key not in _FIRST]
        more = widgets.Accordion(
            [widgets.Box(others, layout=widgets.Layout(flex_flow="row wrap"))],
            titles=(_("More options"),),
        )
        more.selected_index = None
        self._for_programs = (self.program, self.arguments)
        program, arguments = self._for_programs
        rows = [self.mode, program, self.config, arguments, self.name, first, more]
        return [*rows, self.verdict, self.line, self.launch]

    def _show_program(self) -> None:
        shown = "" if self.mode.value == Mode.BETWEEN_GRAPH.value else "none"
        for field in self._for_programs:
            field.layout.display = shown

    def _show_configurations(self, program: str | None) -> None:
        """If the program is a project, offer its configurations; if there are none, hide the
        field.
        """
        names = [*complete_configs(program, Path.cwd())] if program else []
        chosen, options = self.config.value, [("", ""), *((name, name) for name in names)]
        if list(self.config.options) != options:
            with self.config.hold_trait_notifications():
                self.config.options = options
                self.config.value = chosen if chosen in names else ""
        self.config.layout.display = "" if names else "none"

    def _typed(self) -> None:
        self._touched = True
        self._changed()

    def _changed(self) -> None:
        """Check the form as soon as the user has not typed for `TYPING_PAUSE` seconds."""
        self._show_program()
        self.close()
        self._timer = threading.Timer(TYPING_PAUSE, self._look, (self._latest,))
        self._timer.daemon = True
        self._timer.start()

    def _look(self, number: int) -> None:
        """Show what a launch with this form would do, unless the form changed in the meantime."""
        can, lines, line = False, [], ""
        told: tuple[str, ...] = ()
        try:
            if number == self._latest:
                runs_program = self.mode.value == Mode.BETWEEN_GRAPH.value
                self._show_configurations(self.program.value.strip() if runs_program else None)
            what, options = self.launch_request()
            line = magic_line(launch_argv(**what, options=options))
            made = self._manager.sketch(**what, **options)
            lines = [str(problem) for problem in made.problems] or list(made.warnings)
            can, told = not made.problems, (*made.told, *map(_sentence, made.inferred))
        except TFClusterError as refused:
            lines = [str(refused)]
        if number != self._latest:
            return
        self.launch.disabled = self._launching or not can
        if not self._touched:  # an untouched form shows no errors yet
            lines = []
        colour = "var(--jp-warn-color0, #b26a00)" if can else "var(--jp-error-color1, #c62828)"
        self.verdict.value = "".join(f"<div>{escape(text)}</div>" for text in told) + "".join(
            f'<div role="status" style="color:{colour}">{escape(text)}</div>' for text in lines
        )
        self.line.value = f"<code>{escape(line)}</code>" if line else ""

    def _launch(self) -> str:
        self._launching = True
        what, options = self.launch_request()
        made = self._manager.launch(**what, **options)
        return _("launched {name}").format(name=made.metadata.name)

    def _launch_is_over(self) -> None:
        self._launching = False
        self._changed()


def _sentence(told: Message) -> str:
    return sentences([told])


def _field(option: Option) -> Any:
    """Return the widget of an option. If the widget is empty, the option is left out."""
    common = {
        "description": _label(option),
        "tooltip": option.help,
        "layout": _FIELD,
        "style": _LABELS,
    }
    if option.kind is Kind.SWITCH:
        return widgets.Checkbox(value=False, indent=False, **common)
    if option.words:
        return widgets.Dropdown(options=[("", ""), *((w, w) for w in option.words)], **common)
    return widgets.Text(placeholder=_default(option), **common)


def _label(option: Option) -> str:
    """Return the label of an option, with the task type if each type has the option."""
    has_type = len(option.path) == _OF_TYPE and option.path[2] == "resources"
    return f"{option.path[1]} · {_(option.label)}" if has_type else _(option.label)


def _default(option: Option) -> str:
    """Return the default value in the brackets of an option's help text; "" if it is long."""
    text = option.help
    default = text[text.rindex("[") + 1 : -1] if text.endswith("]") else ""
    return default if len(default) <= _SHORT else ""


def _field_value(field: Any) -> Any:
    if isinstance(field, widgets.Checkbox):
        return field.value or None
    text = field.value.strip()
    return text or None
