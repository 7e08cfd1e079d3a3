"""Task types that a program needs, found in its code, each with the line that shows the need.

A program needs a parameter server if it places variables on a parameter server, a chief if nothing
trains without a chief, and an evaluator if it has code for evaluators. Only code that runs when the
program is started counts, and a program that sets up its own cluster needs nothing. This module
only finds the needs. The planning of a launch turns them into numbers of tasks, except where the
user has set the number of tasks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..spec import Message, TaskType
from .command_line import Flag, code_of, taken_flags
from .running_code import RunningCode
from .tree import Tree


@dataclass(frozen=True)
class Evidence:
    """Evidence that a program needs tasks of one type, such as `ps`: a line of the program.

    `code` is the code of the message about the line (`UsesName`, ...), `name` the name in the line,
    and `certain` whether the program cannot train without such a task.
    """

    code: str
    path: str
    line: int
    name: str
    certain: bool = False

    @property
    def message(self) -> Message:
        """The reason why the program needs such tasks, as a clause: `line 12 of train.py uses
        replica_device_setter`.
        """
        return Message(self.code, {"line": self.line, "file": self.path, "name": self.name})


@dataclass(frozen=True)
class Findings:
    """Launch settings found in a program's text.

    Attributes:
        flags: the program's flags that TFCluster knows, including those that it does not pass.
        wanted: for each type that the program needs besides workers, the line that shows the need.
        replaces_tf_config: file and line that overwrite TF_CONFIG, if any.
        unclear: a line that uses a strategy with parameter servers, if the program also uses a
            strategy without parameter servers, so that it is unclear what it needs.
        collective: a line that uses a strategy without parameter servers, in a program that needs
            no parameter servers.
        trains_alone: a line that calls `fit`, if nothing in the program concerns a cluster.
    """

    flags: tuple[Flag, ...] = ()
    wanted: Mapping[TaskType, Evidence] = field(default_factory=dict)
    replaces_tf_config: tuple[str, int] | None = None
    unclear: Evidence | None = None
    collective: Evidence | None = None
    trains_alone: Evidence | None = None


def inspect_program(tree: Tree, entry: str) -> Findings:
    """Inspect a program that is started with the file `entry`. The findings are empty if its code
    is nested too deeply.
    """
    try:
        code = code_of(tree, entry)
        flags = taken_flags(tree, entry, code)
        uses = _Uses(code, flags)
        wanted, unclear = uses.wanted()
        asks = unclear or TaskType.PS in wanted or uses.handles_servers
        collective = None if asks else uses.collective()
        alone = None if asks else uses.trains_alone()
    except RecursionError:
        return Findings()
    return Findings(flags, wanted, uses.replaces_tf_config, unclear, collective, alone)


_PS_STRATEGIES = ("ParameterServerStrategy", "ParameterServerStrategyV2")
_COLLECTIVE = ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")
_NAMES = frozenset((*_PS_STRATEGIES, *_COLLECTIVE, "ClusterCoordinator", "replica_device_setter"))
_CLUSTER_NAMES = frozenset(("ClusterSpec", "Server"))
_TYPES = frozenset(task_type.value for task_type in TaskType)
_TASK_WORDS = re.compile(r"job|task|type|role|mode\b", re.IGNORECASE)
_CLUSTER_WORDS = re.compile(r"cluster|spec|hosts|conf", re.IGNORECASE)
_INDEX_WORDS = re.compile(r"index|task_id|\bid\b|rank|chief", re.IGNORECASE)


class _Uses:
    """The places in a program's running code that concern the tasks of a cluster, such as the names
    of strategies, tests of the task type, and accesses to TF_CONFIG.
    """

    def __init__(self, code: RunningCode, flags: Sequence[Flag]) -> None:
        self.code = code
        self.flags = {flag.key: flag for flag in flags if flag.is_address and not flag.left_out}
        self.names: dict[str, Evidence] = {}
        self.compared: dict[str, Evidence] = {}
        self.looked_up: dict[str, Evidence] = {}
        self.optional: set[str] = set()
        self.first_worker_leads = False
        self.serves_alone = False
        self.names_cluster = False
        self.fits: dict[str, Evidence] = {}
        self.reads_tf_config: dict[str, int] = {}
        self.writes_tf_config: list[tuple[str, int]] = []
        passed_over = _passed_over(code)
        for path, node in code.nodes():
            self.names_cluster |= isinstance(node, ast.Constant) and node.value == "TF_CONFIG"
            if id(node) not in passed_over:
                self._note(path, node)

    @property
    def replaces_tf_config(self) -> tuple[str, int] | None:
        """The file and line that set TF_CONFIG before the program reads it, so that the program
        replaces the addresses of the launch. None if there is no such line, or if the program gets
        the addresses by flags.
        """
        if "worker_hosts" in self.flags or "ps_hosts" in self.flags:
            return None
        for path, line in sorted(self.writes_tf_config, key=lambda found: found[1]):
            if self.reads_tf_config.get(path, line) >= line:
                return path, line
        return None

    @property
    def handles_servers(self) -> bool:
        """Whether the program has code of its own for parameter servers."""
        return "ps" in self.compared or "ps" in self.looked_up or "ps_hosts" in self.flags

    def collective(self) -> Evidence | None:
        """Return the line that uses a strategy without parameter servers; None if there is none."""
        return next((self.names[n] for n in _COLLECTIVE if n in self.names), None)

    def trains_alone(self) -> Evidence | None:
        """Return the line that calls `fit` if nothing in the program concerns a cluster, so that
        each task trains its own model; else None.
        """
        joins = self.names or self.compared or self.looked_up or self.flags or self.names_cluster
        if joins or self.reads_tf_config or self.writes_tf_config:
            return None
        return self.fits.get("fit")

    def wanted(self) -> tuple[dict[TaskType, Evidence], Evidence | None]:
        """Return the task types that the program needs besides workers, each with the line that
        shows the need. If the program has strategies both with and without parameter servers, the
        need is unclear. Then return no types, but the line that uses the strategy with parameter
        servers.
        """
        alone = self.serves_alone and not (self.flags or self.reads_tf_config)
        if alone or self.replaces_tf_config:
            return {}, None  # the program sets up its own cluster
        collective = self.collective()
        ps_strategy = next((self.names[n] for n in _PS_STRATEGIES if n in self.names), None)
        estimator = self.names.get("train_and_evaluate")
        if collective and ps_strategy and "ps_hosts" not in self.flags:
            return {}, ps_strategy
        found: dict[TaskType, Evidence] = {}
        ps = self._parameter_server(ps_strategy)
        if ps is None and estimator is not None and collective is None:
            ps = estimator
        if ps is not None and not (collective and ps.code == "AsksType"):
            found[TaskType.PS] = ps
        chief = self._chief(ps_strategy, collective, estimator)
        if chief is not None:
            found[TaskType.CHIEF] = chief
        evaluator = self.compared.get("evaluator") or estimator
        if evaluator is not None:
            found[TaskType.EVALUATOR] = evaluator
        return found, None

    def _parameter_server(self, strategy: Evidence | None) -> Evidence | None:
        if (flag := self.flags.get("ps_hosts")) is not None:
            return Evidence("TakesFlag", flag.path, flag.line, f"--{flag.name}", certain=True)
        looked_up = None if "ps" in self.optional else self.looked_up.get("ps")
        return (
            strategy
            or self.names.get("replica_device_setter")
            or self.compared.get("ps")
            or looked_up
        )

    def _chief(
        self,
        ps_strategy: Evidence | None,
        collective: Evidence | None,
        estimator: Evidence | None,
    ) -> Evidence | None:
        """Return the line that shows that the program needs a chief; None if worker-0 can lead."""
        if collective is not None:
            return None
        coordinator = self.names.get("ClusterCoordinator")
        joins = "worker" in self.compared or "chief" in self.compared
        leads = coordinator or (ps_strategy if joins else None) or estimator
        if leads is not None:
            return Evidence(leads.code, leads.path, leads.line, leads.name, certain=True)
        if "chief" in self.optional or self.first_worker_leads:
            return None
        return self.compared.get("chief") or self.looked_up.get("chief")

    # -- collecting evidence -----------------------------------------------------------------------

    def _note(self, path: str, node: ast.AST) -> None:
        if isinstance(node, (ast.Attribute, ast.Name)):
            self._note_name(path, node)
        elif isinstance(node, ast.Compare):
            self._note_comparison(path, node)
        elif isinstance(node, ast.Match):
            self._note_match(path, node)
        elif isinstance(node, ast.Subscript):
            self._note_subscript(path, node)
        elif isinstance(node, ast.Call):
            self._note_call(path, node)
        elif isinstance(node, (ast.For, ast.While, ast.ListComp)):
            self.serves_alone |= any(_is_server(each) for each in ast.walk(node))

    def _note_name(self, path: str, node: ast.Attribute | ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        meaning = self.code.meaning(path, node)
        # a name that was not imported, so it belongs to the program itself
        own = isinstance(node, ast.Name) and "." not in meaning
        last = node.attr if isinstance(node, ast.Attribute) else meaning.rpartition(".")[2]
        estimator = meaning.endswith("estimator.train_and_evaluate")
        if (last in _NAMES and not own) or estimator:
            self._keep(self.names, last, Evidence("UsesName", path, node.lineno, last))
        elif last == "TFConfigClusterResolver":
            self._read_tf_config(path, node.lineno)
        elif last in _CLUSTER_NAMES:
            self.names_cluster = True

    def _note_comparison(self, path: str, node: ast.Compare) -> None:
        for op, left, right in zip(
            node.ops, (node.left, *node.comparators), node.comparators, strict=False
        ):
            for said, asked in ((left, right), (right, left)):
                zero = isinstance(said, ast.Constant) and type(said.value) is int and not said.value
                if not zero and not _type_names(said):
                    continue
                text = ast.unparse(asked)
                if zero:
                    self.first_worker_leads |= bool(_INDEX_WORDS.search(text))
                elif isinstance(op, (ast.In, ast.NotIn)) and _CLUSTER_WORDS.search(text):
                    self.optional |= _type_names(said)  # such as `"chief" in cluster_spec`
                elif _TASK_WORDS.search(text):
                    for name in _type_names(said):
                        found = Evidence("AsksType", path, node.lineno, name)
                        self._keep(self.compared, name, found)

    def _note_match(self, path: str, node: ast.Match) -> None:
        if not _TASK_WORDS.search(ast.unparse(node.subject)):
            return
        for case in node.cases:
            for part in ast.walk(case.pattern):
                if isinstance(part, ast.MatchValue):
                    for name in _type_names(part.value):
                        found = Evidence("AsksType", path, part.lineno, name)
                        self._keep(self.compared, name, found)

    def _note_subscript(self, path: str, node: ast.Subscript) -> None:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if key == "TF_CONFIG":
            if isinstance(node.ctx, ast.Load):
                self._read_tf_config(path, node.lineno)
            elif isinstance(node.ctx, ast.Store):
                self.writes_tf_config.append((path, node.lineno))
        elif key in ("ps", "chief") and isinstance(node.ctx, ast.Load):
            found = Evidence("LooksUpType", path, node.lineno, str(key))
            if _CLUSTER_WORDS.search(ast.unparse(node.value)):
                self._keep(self.looked_up, str(key), found)

    def _note_call(self, path: str, node: ast.Call) -> None:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        meaning = self.code.meaning(path, node.func)
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if method == "fit":
            self._keep(self.fits, method, Evidence("UsesName", path, node.lineno, method))
        if first == "TF_CONFIG":
            if method == "putenv":
                self.writes_tf_config.append((path, node.lineno))
            elif method in ("get", "getenv"):
                self._read_tf_config(path, node.lineno)
        elif meaning == "os.environ.update":
            named = {keyword.arg for keyword in node.keywords}
            listed = {
                key.value
                for each in node.args
                if isinstance(each, ast.Dict)
                for key in each.keys
                if isinstance(key, ast.Constant)
            }
            if "TF_CONFIG" in named | listed:
                self.writes_tf_config.append((path, node.lineno))

    def _read_tf_config(self, path: str, line: int) -> None:
        self.reads_tf_config[path] = min(line, self.reads_tf_config.get(path, line))

    @staticmethod
    def _keep(found: dict[str, Evidence], name: str, evidence: Evidence) -> None:
        """Record the evidence for a name. If a name has several lines, the file that was read first
        wins, and in this file the first line.
        """
        known = found.get(name)
        if known is None or (known.path == evidence.path and evidence.line < known.line):
            found[name] = evidence


def _type_names(node: ast.AST) -> set[str]:
    """Return the task types in an expression: a constant, or a tuple, list or set of constants."""
    elements = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return {
        str(each.value)
        for each in elements
        if isinstance(each, ast.Constant) and each.value in _TYPES
    }


def _is_server(node: ast.AST) -> bool:
    """Return whether a node is a call that starts a TensorFlow server with a task type that is
    written in the program.
    """
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "Server":
        return False
    return any(k.arg == "job_name" and _type_names(k.value) for k in node.keywords)


def _passed_over(code: RunningCode) -> set[int]:
    """Return the ids of syntax nodes that do not show what the program needs: accesses to the
    environment inside an `if` that tests TF_CONFIG, and the condition of each `if` whose body does
    nothing.
    """
    found: set[int] = set()
    for _path, node in code.nodes():
        if not isinstance(node, ast.If):
            continue
        if "TF_CONFIG" in ast.unparse(node.test):
            for statement in (*node.body, *node.orelse):
                found.update(id(each) for each in ast.walk(statement) if _is_environment(each))
        if all(isinstance(statement, ast.Pass) for statement in node.body):
            found.update(id(each) for each in ast.walk(node.test))
    return found


def _is_environment(node: ast.AST) -> bool:
    """Return whether a node is an entry of `os.environ`, or a call of one of its methods."""
    whole = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(node, (ast.Subscript, ast.Call)) and "environ" in ast.unparse(whole)
