"""Handwritten digits: 1797 real scans of 8x8 pixels, which come with scikit-learn."""

import numpy as np
from sklearn.datasets import load_digits

CLASSES = 10
PIXELS = 64
TRAIN = 1500


def load():
    """Return (x, y) of 1500 scans to train on, and (x, y) of 297 held out from training."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype("float32"), y.astype("int64")
    order = np.random.RandomState(0).permutation(len(x))
    x, y = x[order], y[order]
    return (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])


def batches(data, size=64, seed=0):
    """Yield random batches of (x, y) without end."""
    x, y = data
    random = np.random.RandomState(seed)
    while True:
        chosen = random.randint(0, len(x), size)
        yield x[chosen], y[chosen]
