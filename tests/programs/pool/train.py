"""A process pool, and a child program that is started by its file name."""

import multiprocessing
import os
import subprocess
import sys


def square(number):
    return number * number


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("squares", sum(pool.map(square, range(10))))
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([sys.executable, os.path.join(here, "evaluate.py"), "--job_name=x"], check=True)
