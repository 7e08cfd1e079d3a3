"""The usage of tasks compared with their requests, from the samples of `runtime/usage.py`."""
