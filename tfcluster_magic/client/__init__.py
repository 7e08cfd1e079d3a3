"""The In-Graph client: a notebook drives the TensorFlow servers of a cluster.

`connect` waits until every task accepts connections and gives a `Client`: its `target` for a
TensorFlow 1 session, `strategy()` and `coordinator()` for ParameterServerStrategy, `resolver()`
for anything else. This package is the only part of TFCluster that imports TensorFlow, and it does
so when a client object is asked for, not before. It never starts or stops a task.
"""

from __future__ import annotations

from .connection import Client, connect
from .strategy import LegacyKerasNeeded
from .tensorflow_errors import explain

__all__ = ["Client", "LegacyKerasNeeded", "connect", "explain"]
