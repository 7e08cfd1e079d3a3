"""The rate at which `tf.data` reads a claim on GlusterFS, compared with the machine's own disk.

Run it by its path, as root; rows go to build/bench/storage.json. It starts a sandbox with its own
volume, which gluster.py sets up as for the tests, and reads through the FUSE mount. It needs no
Kubernetes. "first" is the first epoch after mounting, with an empty cache. "later" is an epoch 2 s
after another, when the kernel asks again for names and sizes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "kube")]

import tensorflow as tf  # noqa: E402
from kubenode import cgroups, gluster, network, paths, sandbox  # noqa: E402
from kubenode.node import Node  # noqa: E402

from benchmarks.rows import Row, compared, save, table  # noqa: E402

SHARDS, RECORDS, RECORD_BYTES = 4, 600, 40_000
IMAGES, IMAGE_BYTES = 800, 12_000
PAUSE = 2.0  # longer than the kernel caches names and sizes (1 s)
OUTPUT = ROOT / "build" / "bench" / "storage.json"

Reader = Callable[[Path], Iterable[object]]


def write(folder: Path) -> None:
    """Write a typical data set: a few TFRecord files, and many small images."""
    (folder / "records").mkdir(parents=True)
    noise = os.urandom(RECORD_BYTES)
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(f"{folder}/records/{shard:03}.tfrecord") as out:
            for _ in range(RECORDS):
                out.write(noise)
    for number in range(IMAGES):
        image = folder / "images" / str(number % 10) / f"{number:05}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(noise[:IMAGE_BYTES])


def shards(folder: Path) -> list[str]:
    """Return the TFRecord files' names."""
    return [f"{folder}/records/{shard:03}.tfrecord" for shard in range(SHARDS)]


def images(folder: Path) -> list[str]:
    """Return the images' paths without listing the folder, as programs do that read the names
    from a table of labels.
    """
    return [f"{folder}/images/{number % 10}/{number:05}.png" for number in range(IMAGES)]


def records(folder: Path) -> tf.data.Dataset:
    """Return a data set that reads one TFRecord file after the other."""
    return tf.data.TFRecordDataset(shards(folder))


def records_shuffled(folder: Path) -> tf.data.Dataset:
    """Return a data set that reads all TFRecord files at once, and shuffles the records."""
    files = tf.data.Dataset.from_tensor_slices(shards(folder)).shuffle(SHARDS)
    read = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
    return read.shuffle(256)


def images_in_order(folder: Path) -> tf.data.Dataset:
    """Return a data set that reads one image after the other."""
    return tf.data.Dataset.from_tensor_slices(images(folder)).map(tf.io.read_file)


def images_shuffled(folder: Path) -> tf.data.Dataset:
    """Return a data set that reads several images at once, each time in another order."""
    names = random.sample(images(folder), IMAGES)
    return tf.data.Dataset.from_tensor_slices(names).map(
        tf.io.read_file, num_parallel_calls=tf.data.AUTOTUNE
    )


READERS = {
    "records": records,
    "records_shuffled": records_shuffled,
    "images": images_in_order,
    "images_shuffled": images_shuffled,
}


def epoch(dataset: tf.data.Dataset) -> float:
    """Read the data set once; return megabytes per second."""
    began = time.monotonic()
    lengths = dataset.batch(32).map(lambda batch: tf.reduce_sum(tf.strings.length(batch)))
    total = sum(int(each) for each in lengths.prefetch(2))
    return total / 1e6 / (time.monotonic() - began)


def forget(folder: Path) -> None:
    """Drop the files on the machine's own disk from the kernel's cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def mount_again(node: Node) -> None:
    """Unmount the volume and mount it again, so that the GlusterFS client loses its cache."""
    subprocess.run(node.inside(["umount", gluster.MOUNT]), check=True)
    gluster.mount(node, node)


def measured(node: Node, rounds: int) -> list[Row]:
    """Return the rows of each data set: on GlusterFS and on the machine's own disk, in the first
    epoch and in later ones.
    """
    local = node.folder / "bench"
    inside = Path(f"/proc/{node.pid}/root")  # the node's root, as this process sees it
    shared = Path(f"{inside}{gluster.CLAIMS}/bench")
    for folder in (local, shared):
        write(folder)
    epoch(records(local))  # not measured: TensorFlow starts here
    rows = []
    for name, reader in READERS.items():
        found: dict[str, tuple[list[float], list[float]]] = {"first": ([], []), "later": ([], [])}
        for _ in range(rounds):
            mount_again(node)
            forget(local)
            for sides in found.values():
                for values, folder in zip(sides, (shared, local), strict=True):
                    values.append(epoch(reader(folder)))
                time.sleep(PAUSE)  # until the cached names and sizes have expired
        for when, (ours, theirs) in found.items():
            rows.append(compared(f"storage_{name}_{when}", "MB/s", ours, theirs))
            print(table(rows[-1:]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Measure, print the rows and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round instead of three")
    rounds = 1 if parser.parse_args().quick else 3
    sandbox.check_machine()
    node = Node(f"bench-{os.getpid()}", 1)
    try:
        node.begin()
        network.make_bridge(node)
        gluster.start(node)
        rows = measured(node, rounds)
    finally:
        node.end()
        cgroups.remove(node.cgroup.partition("/")[0])
        shutil.rmtree(node.state, ignore_errors=True)
        shutil.rmtree(paths.cache() / "nodes" / node.cluster, ignore_errors=True)
    save(rows, OUTPUT)
    print(table(rows))


if __name__ == "__main__":
    main()
