"""TFCluster: distributed TensorFlow from a notebook, on one machine or on Kubernetes."""

from __future__ import annotations

__version__ = "0.1.0"
