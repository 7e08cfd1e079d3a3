"""A table of the TensorFlow errors that a user of a cluster meets, and what to do about them.

This module reads the type name and text of an exception and never imports TensorFlow. Every pattern
is the text of a real error of TensorFlow 2.21 or Keras 3; `tests/unit/client/test_connection.py`
checks them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..i18n import _, mark


@dataclass(frozen=True)
class Explanation:
    """The meaning of an error; `lost` says whether the error may mean that a task is gone."""

    text: str
    lost: bool = False


@dataclass(frozen=True)
class _Rule:
    types: tuple[str, ...]
    pattern: str
    sentences: tuple[str, ...]
    lost: bool = False


_PYTHON_STAYS_HERE = mark(
    "tf.py_function, tf.numpy_function and Dataset.from_generator run Python in the "
    "process of a task, but a function of this notebook exists only in the "
    "notebook's process."
)
_WHAT_WORKS = mark(
    "What works: compute it here and feed the result; or cluster.strategy(), where TensorFlow "
    "calls back into this notebook; or a Between-Graph program, in which each worker defines the "
    "function itself."
)

KERAS_3 = mark(
    "model.fit of Keras 3 does not work with ParameterServerStrategy. Use Keras 2: set "
    "TF_USE_LEGACY_KERAS=1 before TensorFlow is imported{tf_keras}; or write the training loop "
    "with cluster.coordinator()."
)

_RULES = (
    _Rule(
        ("InvalidArgumentError", "NotFoundError"),
        r"No OpKernel was registered to support Op '(Eager)?PyFunc(Stateless)?'",
        (
            mark("This cluster's native servers cannot run Python."),
            _PYTHON_STAYS_HERE,
            mark(
                "Servers launched with `--server python` can, but they know only "
                "functions that their own process defined."
            ),
            _WHAT_WORKS,
        ),
    ),
    _Rule(
        ("InvalidArgumentError", "UnknownError", "InternalError"),
        r"Could not find callback with key=\w+ in the registry",
        (_PYTHON_STAYS_HERE, _WHAT_WORKS),
    ),
    _Rule(
        ("ValueError",),
        r"you need to pass this dataset to ClusterCoordinator\.create_per_worker_dataset",
        (KERAS_3,),
    ),
    _Rule(
        ("AbortedError", "InvalidArgumentError"),
        r"Unable to find a context_id matching",
        (
            mark(
                "A parameter server was restarted and its variables are gone. Run the cells "
                "again, starting with cluster.strategy(); then restore your last checkpoint."
            ),
        ),
    ),
    _Rule(
        ("FailedPreconditionError",),
        r"(uninitialized|was not initialized|Could not find variable)",
        (
            mark(
                "The parameter servers do not hold this variable. Run its initializer; if it ran "
                "before, a parameter server was restarted since: open a new session, initialise, "
                "and restore your last checkpoint."
            ),
        ),
    ),
    _Rule(
        ("DeadlineExceededError",),
        r"",
        (
            mark(
                "TensorFlow did not answer in time. If all tasks run and one step "
                "simply takes longer, use connect(..., operation_timeout=SECONDS)."
            ),
        ),
        lost=True,
    ),
    _Rule(
        ("UnavailableError", "AbortedError"),
        r"",
        (
            mark(
                "A task was lost. Once it is back, use a new session, or call cluster.strategy() "
                "again."
            ),
        ),
        lost=True,
    ),
)


def explain(error: BaseException) -> Explanation | None:
    """Return an explanation of `error`, and what to do; None if the error is unknown."""
    kind, text = type(error).__name__, str(error)
    for rule in _RULES:
        if kind in rule.types and re.search(rule.pattern, text, re.DOTALL):
            sentences = (_(sentence).format(tf_keras="") for sentence in rule.sentences)
            return Explanation(" ".join(sentences), rule.lost)
    return None
