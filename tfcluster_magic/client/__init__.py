"""The In-Graph client: a notebook drives the TensorFlow servers of a cluster.

`connect` waits until every task accepts connections and returns a `Client`. Use its `target` for a
TensorFlow 1 session, `strategy()` and `coordinator()` for ParameterServerStrategy, and `resolver()`
for everything else. Only this package imports TensorFlow, and only when a client object is created.
This package never starts or stops a task.
"""

from __future__ import annotations

from .connection import Client, connect
from .strategy import LegacyKerasNeeded
from .tensorflow_errors import explain

__all__ = ["Client", "LegacyKerasNeeded", "connect", "explain"]
