"""Projects: folders with a program and `tfcluster.yaml`, which sets options of a launch by name.

    program: train.py
    workers: 4
    configurations:
      quick: {workers: 1, max-duration: 10m}

A value is read like the value of an option on a command line, so YAML does not change values such
as `on`, `1e-3` or `010`. The file can set only options of a launch. The program must be inside the
folder, and unknown keys are refused. This module has the file's format, the JSON Schema of the
file, and the search for projects below a folder. Nothing is launched or written.
"""

from __future__ import annotations

import difflib
import json
import os
import posixpath
import re
import shlex
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest, Problem
from ..i18n import _
from ..program import is_url
from ..program.tree import is_ignored, is_safe
from ..spec import NAME_PATTERN, TaskType, names
from . import PROJECT_FILE, ProjectUse
from .form_fields import bounds
from .options import OPTIONS, Kind, Option, read_options

if TYPE_CHECKING:
    import yaml

MOST_BYTES = 64 * 1024
MOST_CONFIGURATIONS = 50
CONFIGURATIONS = "configurations"
CONFIG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
BESIDE = ("program", "arguments", "name")
"""Keys of a project's file that are not options of a launch."""
BY_NAME: Mapping[str, Option] = {option.flag[2:]: option for option in OPTIONS}
"""Options by their key in the file: `--max-duration` is `max-duration`."""

Value = bool | str | tuple[str, ...] | dict[str, str]


@dataclass(frozen=True)
class ProjectProblem(Problem):
    """A problem at a `line` of the file, counted from 1; `configuration` is empty for settings
    outside the configurations.
    """

    line: int = 1
    configuration: str = ""


@dataclass(frozen=True)
class Setting:
    """One setting of the file: the key as written, and the value as on a command line. The value is
    true or false for a switch, several texts for a repeatable option, and a mapping of names to
    texts for an option such as `env`.
    """

    key: str
    value: Value
    line: int

    @property
    def option_key(self) -> str:
        """The option's name in Python."""
        return self.key.replace("-", "_")

    @property
    def is_pairs(self) -> bool:
        """Whether the value is a mapping of names to texts, as for `env`. The value of the same key
        in a configuration, or of the option on a command line, is then merged with this value
        instead of replacing it.
        """
        return isinstance(self.value, dict)

    def __str__(self) -> str:
        """Return `key: value`, shortened, for display."""
        value = self.value
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, dict):
            text = " ".join(f"{name}={content}" for name, content in value.items())
        else:
            text = value if isinstance(value, str) else shlex.join(value)
        text = " ".join(text.split())
        return f"{self.key}: {text if len(text) <= 80 else text[:77] + '...'}"


Settings = Mapping[str, Setting]


def overlaid(below: Settings, above: Settings) -> dict[str, Setting]:
    """Return the settings of `below` and `above` together. A setting in `above` replaces the same
    setting in `below`, except that pairs such as `env` are merged. `memory` in `above` also
    replaces `worker-memory` in `below`, because it applies to every task.
    """
    kept = {key: each for key, each in below.items() if key not in _replaced(below, above)}
    for key, each in above.items():
        before = kept.get(key)
        if before is not None and isinstance(before.value, dict) and isinstance(each.value, dict):
            each = replace(each, value={**before.value, **each.value})  # noqa: PLW2901
        kept[key] = each
    return kept


def _replaced(below: Settings, above: Settings | Mapping[str, object]) -> list[str]:
    """Return the keys of `below` that `above` replaces."""
    each_task = {
        f"{t.value}-{key}" for t in TaskType for key in ("cpu", "memory", "gpu") if key in above
    }
    return [
        key for key, each in below.items() if key in each_task | above.keys() and not each.is_pairs
    ]


@dataclass(frozen=True)
class Project:
    """A project folder with its common settings and those of each configuration.

    `called` is the path of the file in messages, as the user would write it.
    """

    folder: Path
    called: str
    settings: Settings
    configurations: Mapping[str, Settings]

    def settings_of(self, config: str | None) -> dict[str, Setting]:
        """Return the settings of a configuration, including the common settings; if `config` is
        None, only the common settings.

        Raises:
            InvalidRequest: there is no such configuration.
        """
        if config is None:
            return dict(self.settings)
        if config not in self.configurations:
            raise InvalidRequest([Problem("--config", config, self._no_such(config))])
        return overlaid(self.settings, self.configurations[config])

    def _no_such(self, config: str) -> str:
        if not self.configurations:
            return _("{file} has no configurations").format(file=self.called)
        close = difflib.get_close_matches(config, self.configurations, 1)
        if close:
            text = _("{file} has no such configuration; did you mean {close}?")
            return text.format(file=self.called, close=close[0])
        text = _("{file} has no such configuration; it has {names}")
        return text.format(file=self.called, names=", ".join(self.configurations))

    def origin(self, setting: Setting) -> str:
        """Return the place of a setting (file, line and key), for problems."""
        return f"{self.called}:{setting.line} {setting.key}"

    def words(self, config: str | None, given: Mapping[str, object]) -> ProjectWords:
        """Return the file's settings for a launch. The values in `given` take precedence over the
        file: options by their Python keys, and the keys of `BESIDE`.

        Raises:
            InvalidRequest: there is no such configuration.
        """
        every = self.settings_of(config)
        said = {
            key.replace("_", "-"): value for key, value in given.items() if value not in (None, ())
        }
        gone = _replaced(every, said)
        kept = {
            key: each
            for key, each in every.items()
            if key not in gone and each.value not in ((), {})
        }
        program, name = kept.get("program"), kept.get("name")
        options = {e.option_key: e.value for key, e in kept.items() if key not in BESIDE}
        if isinstance(python := options.get("python"), str) and os.sep in python:
            options["python"] = os.path.join(self.folder, os.path.expanduser(python))
        arguments = kept["arguments"].value if "arguments" in kept else ()
        return ProjectWords(
            use=ProjectUse(
                str(self.folder), config, tuple(map(str, kept.values())), tuple(sorted(gone))
            ),
            entry=None if program is None else posixpath.normpath(str(program.value)),
            name=None if name is None else str(name.value),
            arguments=arguments if isinstance(arguments, tuple) else (),
            options=options,
            origins={e.option_key: self.origin(e) for e in kept.values()},
        )


@dataclass(frozen=True)
class ProjectWords:
    """The settings of a project's file for one launch: `entry` is the path of the program below the
    folder. `options` maps the Python keys of options to their values. `origins` maps the same keys
    to the places in the file where the options are set; messages about problems name these places.
    """

    use: ProjectUse
    entry: str | None
    name: str | None
    arguments: tuple[str, ...]
    options: Mapping[str, object]
    origins: Mapping[str, str]


def wrong_program(folder: Path, program: str) -> str | None:
    """Return the reason why a file cannot be the program of a project; None if it can."""
    path = posixpath.normpath(program)
    if is_url(program) or program.startswith(("/", "~")) or path.startswith("..") or path == ".":
        return _("name a file of this folder by its path in the folder, such as train.py")
    if not is_safe(path):
        return _("a path has no control characters and no backslash")
    if not path.endswith((".py", ".sh")):
        return _("a program is a .py or .sh file")
    real, root = os.path.realpath(folder / path), os.path.realpath(folder)
    if os.path.commonpath([real, root]) != root:
        return _("it is a link that leads out of the folder: put a copy in its place")
    if os.path.isfile(real):
        return None
    there = [name for name in os.listdir(folder) if name.endswith((".py", ".sh"))]
    close = difflib.get_close_matches(path, there, 1)
    if close:
        return _("there is no such file in the folder; did you mean {close}?").format(
            close=close[0]
        )
    return _("there is no such file in the folder")


# Finding and reading a project


def project_folder(program: str, cwd: Path) -> Path | None:
    """Return the folder of the project that `program` names; None if `program` is neither a project
    folder nor its `tfcluster.yaml`.
    """
    if is_url(program) or not program.strip():
        return None
    try:
        path = Path(os.path.abspath(cwd / os.path.expanduser(program)))
        if path.name == PROJECT_FILE and not path.is_dir():
            path = path.parent
        return path if os.path.lexists(path / PROJECT_FILE) and path.is_dir() else None
    except (OSError, ValueError):  # the name is too long, or has a zero byte
        return None


def read_project(
    folder: Path, called: str | None = None, *, looks_for_program: bool = True
) -> Project:
    """Read the project in `folder`, a full path; messages call its file `called`.

    Raises:
        InvalidRequest: the file has problems; the error has all of them, each a `ProjectProblem`
            with its line.
    """
    project, problems = read_valid_part(folder, called, looks_for_program=looks_for_program)
    if problems:
        raise InvalidRequest(problems)
    return project


def read_valid_part(
    folder: Path, called: str | None = None, *, looks_for_program: bool = True
) -> tuple[Project, Sequence[ProjectProblem]]:
    """Return the project in `folder` without its invalid settings, and the problems of these, by
    line. The arguments are those of `read_project`.

    Raises:
        InvalidRequest: no setting can be read, for example because the file is not YAML.
    """
    called = called or _short(folder / PROJECT_FILE)
    text = _file_text(folder / PROJECT_FILE, called)
    return _Reader(folder, called, looks_for_program).read(text)


def _short(path: Path) -> str:
    """Return a path relative to the working folder if it is in that folder, otherwise the path
    itself.
    """
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _file_text(path: Path, called: str) -> str:
    """Return the text of a project's file. Links, pipes and devices are not read, because the
    folder may belong to another user.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidRequest([ProjectProblem(called, None, _("it is not a regular file"))])
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            allowed = _("it has more than {count} bytes, which is too much").format(
                count=MOST_BYTES
            )
            raise InvalidRequest([ProjectProblem(called, None, allowed)])
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest([ProjectProblem(called, None, _("it is not text in UTF-8"))]) from None
    except FileNotFoundError:
        allowed = _("there is no such file: `tfcluster project init` writes one")
        raise InvalidRequest([ProjectProblem(called, None, allowed)]) from None
    except OSError as error:
        why = _("it is a link: put a file in its place") if path.is_symlink() else error.strerror
        allowed = _("it cannot be read: {why}").format(why=why)
        raise InvalidRequest([ProjectProblem(called, None, allowed)]) from None


_PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "timestamp")}
_BOOL, _NULL = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"
_TRUE = ("true", "yes", "on")


class _Reader:
    """Reader of one file, which collects the file's problems. It uses YAML nodes and builds no
    objects from them, so tags have no effect and texts stay as written.
    """

    def __init__(self, folder: Path, called: str, looks_for_program: bool) -> None:
        self._folder, self._called = folder, called
        self._looks_for_program = looks_for_program
        self._problems: list[ProjectProblem] = []
        self._configuration = ""

    def read(self, text: str) -> tuple[Project, Sequence[ProjectProblem]]:
        root = self._composed(text)
        settings: dict[str, Setting] = {}
        configurations: dict[str, Settings] = {}
        if root is not None:
            settings, below = self._settings(root, is_top=True)
            if below is not None:
                configurations = self._configurations(below)
        found = sorted(self._problems, key=lambda problem: problem.line)
        return Project(self._folder, self._called, settings, configurations), found

    def _composed(self, text: str) -> yaml.Node | None:
        """Return the file as nodes; None if it is empty."""
        import yaml  # a top-level import would slow the start of every command

        class NoAliases(yaml.SafeLoader):
            """A loader that refuses aliases, because a short text with aliases can expand to a huge
            document.
            """

            def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
                if self.check_event(yaml.AliasEvent):
                    mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                    why = _("aliases (*name) are not read here: write the value out")
                    raise yaml.MarkedYAMLError(problem=why, problem_mark=mark)
                return super().compose_node(parent, index)

        try:
            root = yaml.compose(text, NoAliases)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            allowed = _("it is not YAML: {why}").format(why=error.problem or error.context)
            raise self._alone(line, allowed) from None
        except yaml.YAMLError as error:  # for example, a character that YAML does not allow
            at = getattr(error, "position", 0)
            line = text.count("\n", 0, at if isinstance(at, int) else 0) + 1
            reason = getattr(error, "reason", error)
            raise self._alone(line, _("it is not YAML: {why}").format(why=reason)) from None
        except RecursionError:
            raise self._alone(1, _("it is nested too deeply")) from None
        if root is None or root.tag == _NULL:
            return None
        return root

    def _alone(self, line: int, allowed: str) -> InvalidRequest:
        return InvalidRequest([ProjectProblem(f"{self._called}:{line}", None, allowed, line=line)])

    def _wrong(self, node: yaml.Node, key: str, value: object, allowed: str) -> None:
        line = node.start_mark.line + 1
        where = f"{self._called}:{line} {key}".rstrip()
        self._problems.append(
            ProjectProblem(where, value, allowed, line=line, configuration=self._configuration)
        )

    def _settings(
        self, root: yaml.Node, *, is_top: bool
    ) -> tuple[dict[str, Setting], yaml.Node | None]:
        """Return the settings of a mapping, and the node of its configurations, if any."""
        found: dict[str, Setting] = {}
        below = None
        pairs = self._pairs(root, _("write options by their names, such as `workers: 2`"))
        names_here = [key.value for key, _value in pairs]
        if is_top and {"kind", "apiVersion", "spec"} & {*names_here}:
            text = _("this is a cluster file: launch it with `tfcluster launch -f {file}`")
            self._wrong(root, "", None, text.format(file=self._called))
            return found, None
        for key, value in pairs:
            if key.value == CONFIGURATIONS and is_top:
                below = value
            elif key.value not in BY_NAME and key.value not in BESIDE:
                self._wrong(key, key.value, _shown(value), _unknown(key.value, is_top))
            elif value.tag == _NULL:
                allowed = _("it has no value: write one, or remove the line")
                self._wrong(key, key.value, None, allowed)
            else:
                read = self._value(key.value, value)
                if read is not None and self._is_allowed(key.value, read, value):
                    line = key.start_mark.line + 1
                    found[key.value] = Setting(key.value, read, line)
        return found, below

    def _is_allowed(self, key: str, value: Value, node: yaml.Node) -> bool:
        """Return whether a value is valid for its setting; if not, add the problem."""
        if key == "program":
            why = wrong_program(self._folder, str(value)) if self._looks_for_program else None
            found = [] if why is None else [Problem(key, value, why)]
        elif key == "name":
            is_valid = names.is_valid(str(value))
            found = [] if is_valid else [Problem(key, value, names.name_rule(str(value)))]
        else:
            given = {key.replace("-", "_"): value} if key in BY_NAME else {}
            found = read_options(given).problems
        for problem in found:
            self._wrong(node, key, problem.value, str(problem.allowed))
        return not found

    def _configurations(self, node: yaml.Node) -> dict[str, Settings]:
        rule = _("write a name for each configuration, and below it its options")
        found: dict[str, Settings] = {}
        for key, value in self._pairs(node, rule, CONFIGURATIONS):
            self._configuration = name = key.value
            if not re.fullmatch(CONFIG_PATTERN, name):
                allowed = _("a name has letters, digits, '-', '_' and '.', and at most 63 of them")
                self._wrong(key, CONFIGURATIONS, name, allowed)
            elif value.tag == _NULL:
                found[name] = {}
            else:
                found[name], _none = self._settings(value, is_top=False)
        self._configuration = ""
        if len(found) > MOST_CONFIGURATIONS:
            allowed = _("a project has at most {most} configurations").format(
                most=MOST_CONFIGURATIONS
            )
            self._wrong(node, CONFIGURATIONS, len(found), allowed)
        return found

    def _pairs(
        self, node: yaml.Node, rule: str, key: str = ""
    ) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        """Return the pairs of a mapping; keys must be texts and unique."""
        import yaml

        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, key, _shown(node), rule)
            return []
        found: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag not in _PLAIN:
                self._wrong(name, key, _shown(name), rule)
            elif name.value in found:
                first = found[name.value][0].start_mark.line + 1
                text = _("it occurs twice, first in line {line}: remove one")
                self._wrong(name, name.value, _shown(value), text.format(line=first))
            else:
                found[name.value] = (name, value)
        return [*found.values()]

    def _value(self, key: str, node: yaml.Node) -> Value | None:
        """Return the value of a setting; if it is invalid, add a problem and return None."""
        kind = BY_NAME[key].kind if key in BY_NAME else None
        if kind is Kind.SWITCH:
            if node.tag != _BOOL:
                self._wrong(node, key, _shown(node), _("write true or false"))
                return None
            return str(node.value).lower() in _TRUE
        if kind in (Kind.PAIRS, Kind.ANNOTATIONS):
            rule = _("write NAME: VALUE, one on each line below it")
            found = {n.value: self._text(key, v, rule) for n, v in self._pairs(node, rule, key)}
            return {name: text for name, text in found.items() if text is not None}
        if key == "arguments" or (kind is not None and kind.repeats):
            return self._texts(key, node)
        return self._text(key, node, _("write one value"))

    def _texts(self, key: str, node: yaml.Node) -> tuple[str, ...] | None:
        """Return the texts of a setting whose value is a list; None if the value is invalid. A
        single text counts as a list of one text; for arguments, the text is split as a shell would
        split it.
        """
        import yaml

        rule = _("write a list of texts, such as [--epochs, 3]")
        if isinstance(node, yaml.SequenceNode):
            found = [self._text(key, each, rule) for each in node.value]
            return tuple(text for text in found if text is not None)
        text = self._text(key, node, rule)
        if text is None or key != "arguments":
            return None if text is None else (text,)
        try:
            return tuple(shlex.split(text))
        except ValueError:
            self._wrong(node, key, text, _("a quote or backslash is not closed"))
            return None

    def _text(self, key: str, node: yaml.Node, rule: str) -> str | None:
        import yaml

        if isinstance(node, yaml.ScalarNode) and node.tag in _PLAIN:
            return str(node.value)
        self._wrong(node, key, _shown(node), rule)
        return None


def _shown(node: yaml.Node) -> object:
    """Return a node as text, to show in a problem; None for null. Values inside a list or map are
    shown as `…` if they are lists or maps themselves.
    """
    import yaml

    if node.tag == _NULL:
        return None
    if isinstance(node, yaml.SequenceNode):
        return f"[{', '.join(map(_inside, node.value))}]"
    if isinstance(node, yaml.MappingNode):
        return f"{{{', '.join(f'{_inside(k)}: {_inside(v)}' for k, v in node.value)}}}"
    return str(node.value)


def _inside(node: yaml.Node) -> str:
    return node.value if isinstance(node.value, str) else "…"


def _unknown(key: str, is_top: bool) -> str:
    known = [*BESIDE, *BY_NAME, *([CONFIGURATIONS] if is_top else [])]
    close = difflib.get_close_matches(key.removeprefix("--").replace("_", "-"), known, 1)
    if close:
        return _("no option has this name; did you mean {close}?").format(close=close[0])
    text = _("no option has this name; the options are {options}")
    return text.format(options=", ".join(known))


# The JSON Schema, for editors


def project_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft-07, which editors read) of `tfcluster.yaml`."""
    configuration: dict[str, Any] = {
        name: {"$ref": f"#/definitions/{name}"} for name in (*BESIDE, *BY_NAME)
    }
    texts = {"type": ["string", "number", "boolean"]}
    beside = {
        "program": {
            "type": "string",
            "description": "file of the folder that each task runs [run.sh, main.py, __main__.py "
            "or the only .py file]",
            "examples": ["train.py"],
        },
        "arguments": {
            "description": "what the program is given on its command line: a list, or one line as "
            "in a shell",
            "anyOf": [{"type": "array", "items": texts}, texts],
            "examples": [["--epochs", 3]],
        },
        "name": {
            "type": "string",
            "description": "name of the cluster [the folder's]",
            "pattern": NAME_PATTERN,
        },
    }
    settings = {name: _option_schema(option, texts) for name, option in BY_NAME.items()}
    every: dict[str, Any] = {
        "type": ["object", "null"],
        "description": "options that replace those above, with `--config` and this name",
        "additionalProperties": False,
        "properties": configuration,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://tfcluster.dev/schemas/project/v1",
        "title": "TFCluster project",
        "description": "The file tfcluster.yaml of a project: options of a launch by their names.",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            **configuration,
            CONFIGURATIONS: {
                "type": "object",
                "description": "named configurations: `tfcluster launch FOLDER --config NAME`",
                "maxProperties": MOST_CONFIGURATIONS,
                "propertyNames": {"pattern": CONFIG_PATTERN},
                "additionalProperties": {"$ref": "#/definitions/configuration"},
            },
        },
        "definitions": {**beside, **settings, "configuration": every},
    }


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(project_schema(), indent=1) + "\n"


def _option_schema(option: Option, texts: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"description": option.help.replace("; repeatable", "")}
    path = (
        option.path
        if option.path[0] != "*"
        else ("replicas", "worker", "resources", option.path[1])
    )
    if option.words:
        return told | {"enum": [*option.words]}
    if option.kind is Kind.SWITCH:
        return told | {"type": "boolean"}
    if option.kind in (Kind.PAIRS, Kind.ANNOTATIONS):
        return told | {"type": "object", "additionalProperties": texts}
    if option.kind.repeats:
        one = {"type": "string"}
        return told | {
            "anyOf": [one, {"type": "array", "items": one}],
            "examples": [option.kind.value],
        }
    if option.kind is Kind.WHOLE:
        return told | {"type": "integer", **bounds(path)}
    if option.kind is Kind.NUMBER:
        return told | {"type": "number", **bounds(path)}
    if option.kind in (Kind.MEMORY, Kind.DURATION):
        example = "2Gi" if option.kind is Kind.MEMORY else "2h"
        return told | {"type": ["string", "number"], "examples": [example]}
    return told | {"type": "string"}


# Projects below a folder

DEPTH = 5
"""Maximum depth of a search below the folder in which it begins."""
MOST_FOLDERS = 4000
MOST_PROJECTS = 200
SEARCH_TIME = 2.0
"""Seconds after which a search returns what it has found."""
KEPT = 15.0
"""Seconds for which the result of a search is cached; a caller can ask for a new search."""


@dataclass(frozen=True)
class ListedProject:
    """A project that a search has found. `problems` are the problems of its file; the program is
    not checked.
    """

    folder: Path
    configurations: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class ProjectList:
    """The projects below a folder, in the order of their paths; `complete` is false if the search
    ended early at one of its limits.
    """

    projects: tuple[ListedProject, ...]
    complete: bool = True


@dataclass
class ProjectFinder:
    """Searches for projects below `root`, and keeps the result for a while. A search follows no
    links and does not look inside projects. Threads may share a finder.
    """

    root: Path
    now: Callable[[], float] = time.monotonic
    _found: ProjectList | None = None
    _at: float = 0.0
    _files: dict[str, tuple[tuple[int, ...], ListedProject]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, fresh: bool = False) -> ProjectList:
        """Return the projects; if `fresh` is true, search again even if a result is cached."""
        with self._lock:
            if self._found is None or fresh or self.now() - self._at > KEPT:
                self._found = self._search()
                self._at = self.now()
            return self._found

    def _search(self) -> ProjectList:
        folders: list[Path] = []
        complete = True
        pending = deque([(self.root, 0)])
        until, seen = self.now() + SEARCH_TIME, 0
        while pending:
            if seen >= MOST_FOLDERS or len(folders) >= MOST_PROJECTS or self.now() > until:
                complete = False
                break
            folder, depth = pending.popleft()
            seen += 1
            below = _scanned(folder)
            if below is None:
                folders.append(folder)
            elif depth < DEPTH:
                pending.extend((each, depth + 1) for each in below)
        kept = {str(folder): self._listed(folder) for folder in sorted(folders)}
        self._files = {path: each for path, each in kept.items() if each is not None}
        return ProjectList(tuple(each[1] for each in kept.values() if each is not None), complete)

    def _listed(self, folder: Path) -> tuple[tuple[int, ...], ListedProject] | None:
        try:
            state = os.lstat(folder / PROJECT_FILE)
        except OSError:  # the folder was removed in the meantime
            return None
        stamp = (state.st_mtime_ns, state.st_size, state.st_ino, state.st_ctime_ns)
        known = self._files.get(str(folder))
        if known is not None and known[0] == stamp:
            return known
        try:
            called = str((folder / PROJECT_FILE).relative_to(self.root))
            read = read_project(folder, called, looks_for_program=False)
        except InvalidRequest as error:
            return stamp, ListedProject(folder, problems=error.problems)
        return stamp, ListedProject(folder, tuple(read.configurations))


def _scanned(folder: Path) -> list[Path] | None:
    """Return the subfolders of a folder in the order of their names; None if the folder is a
    project.
    """
    below = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == PROJECT_FILE and not entry.is_dir(follow_symlinks=False):
                    return None
                if entry.name == "pyvenv.cfg":
                    return []
                if entry.name.startswith(".") or is_ignored(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append(Path(entry.path))
    except OSError:  # the folder is not readable
        return []
    return sorted(below)


def setting_lines(setting: Setting) -> str | bool:
    """Return a value as a user would type it into a form's field, with one line for each of several
    texts.
    """
    value = setting.value
    if isinstance(value, dict):
        return "\n".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, tuple):
        return shlex.join(value) if setting.key == "arguments" else "\n".join(value)
    return value


def sets_python(program: str | None, cwd: Path, config: str | None) -> bool:
    """Return whether `program` is a project whose file sets the Python of its tasks."""
    folder = project_folder(program, cwd) if program else None
    if folder is None:
        return False
    try:
        return "python" in read_project(folder).settings_of(config)
    except InvalidRequest:  # the launch will report the problem
        return False


def complete_configs(program: str, cwd: Path) -> Iterator[str]:
    """Yield the names of the configurations of the project that `program` names, if it is one."""
    folder = project_folder(program, cwd)
    if folder is None:
        return
    try:
        yield from read_project(folder).configurations
    except InvalidRequest:
        return
