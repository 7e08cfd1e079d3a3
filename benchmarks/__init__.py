"""Benchmarks of TFCluster against plain TensorFlow: `python -m benchmarks [NAME]`."""
