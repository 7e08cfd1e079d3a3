"""Takes only --epochs; --data_dir belongs to the helper when the helper runs alone."""

import argparse

import loader

parser = argparse.ArgumentParser(epilog="the file of --data_dir is read by loader.py")
parser.add_argument("--epochs", type=int, default=2)
for epoch in range(parser.parse_args().epochs):
    print("epoch", epoch, "batches", len(loader.batches(4)))
