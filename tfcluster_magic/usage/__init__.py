"""What tasks use, beside what was requested: the samples of `runtime/usage.py`, read and summed."""
