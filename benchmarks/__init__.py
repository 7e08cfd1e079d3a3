"""Figures of TFCluster beside plain TensorFlow started by hand: `python -m benchmarks [NAME]`."""
