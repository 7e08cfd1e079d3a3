"""A program without TensorFlow that prints the time repeatedly."""

import sys
import time

for _ in range(int(sys.argv[1])):
    print(f"{time.time():.6f}", flush=True)
    time.sleep(0.37)
