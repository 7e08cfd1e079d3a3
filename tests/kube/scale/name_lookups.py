"""Look up names of tasks in a pod, by the pod's own resolver; print the results as JSON.

`name_lookups.py all` is the program of a run and takes the names from TF_CONFIG. Other pods read
this program from standard input: `python3 - '{"do": "dial", "hosts": …}' <name_lookups.py`. It uses
only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

PATIENCE = 120.0
PROCESSES = 2
NO_ERROR, NO_NAME = 0, 3

Found = dict[str, Any]


def every(hosts: Sequence[str]) -> Found:
    """Look up each name once, one after the other, as a task does."""
    began = time.monotonic()
    heard = {host: _address(host) for host in hosts}
    failed = [f"{host}: {said}" for host, (said, there) in heard.items() if not there]
    addresses = {said for said, there in heard.values() if there}
    seconds = time.monotonic() - began
    found = {"asked": len(hosts), "addresses": len(addresses), "seconds": seconds}
    return {**found, "failed": len(failed), "first": failed[:3]}


def _address(host: str) -> tuple[str, bool]:
    """Return the address and True, or the error and False."""
    try:
        found = socket.getaddrinfo(host, 2222, type=socket.SOCK_STREAM)
    except OSError as error:
        return str(error), False
    return str(found[0][4][0]), True


def dial(ps: Sequence[str], workers: Sequence[str], share: int, filters: bool) -> Found:
    """Look up the names that every `share`-th task needs to connect to its peers.

    With device filters, a worker connects only to parameter servers, and a parameter server only to
    workers. Without filters every task connects to every other.
    """
    tasks = [*ps, *workers]
    asked = [_peers(task, ps, workers, filters) for task in tasks[::share]]
    began = time.monotonic()
    with ProcessPoolExecutor(PROCESSES) as pool:
        heard = list(pool.map(every, asked, chunksize=4))
    found = {what: sum(each[what] for each in heard) for what in ("asked", "failed")}
    first = [each["first"] for each in heard if each["first"]][:3]
    return {**found, "first": first, "tasks": len(asked), "seconds": time.monotonic() - began}


def _peers(task: str, ps: Sequence[str], workers: Sequence[str], filters: bool) -> Sequence[str]:
    if filters:
        return workers if task in ps else ps
    return [other for other in (*ps, *workers) if other != task]


def until(hosts: Sequence[str]) -> Found:
    """Look up names until all exist."""
    deadline, missing = time.monotonic() + PATIENCE, list(hosts)
    while missing and time.monotonic() < deadline:
        missing = [host for host in missing if every([host])["failed"]]
    return {"missing": missing}


def late(name: str, servers: Mapping[str, tuple[str, int]]) -> Found:
    """Return the wall-clock time at which each DNS server first resolved the name."""
    found: dict[str, float] = {}
    deadline = time.monotonic() + PATIENCE
    while len(found) < len(servers) and time.monotonic() < deadline:
        for server, address in servers.items():
            if server not in found and code(name, *address) == NO_ERROR:
                found[server] = time.time()
        time.sleep(0.05)  # DNS has no notification; the times are exact to 0.05 s
    return found


def early(name: str, servers: Mapping[str, tuple[str, int]]) -> Found:
    """Return each DNS server's response code for a name that does not exist yet."""
    return {server: code(name, *address) for server, address in servers.items()}


def code(name: str, server: str, port: int) -> int:
    """Return the response code of a DNS server to a query for a name's address.

    Ref: https://www.rfc-editor.org/rfc/rfc1035 section 4.1
    """
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    question = struct.pack("!6H", os.getpid() & 0xFFFF, 0x0100, 1, 0, 0, 0) + labels
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(5)
        asking.connect((server, port))
        asking.send(question + struct.pack("!B2H", 0, 1, 1))
        return asking.recv(4096)[3] & 0xF


def counters(where: str) -> dict[str, float]:
    """Return CoreDNS's number of answers so far, by code."""
    with urllib.request.urlopen(where, timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    pattern = r'^coredns_dns_responses_total\{.*rcode="(\w+)".*\} (\S+)$'
    for rcode, value in re.findall(pattern, text, re.MULTILINE):
        found[rcode] = found.get(rcode, 0) + float(value)
    return found


def counted(metrics: str, ask: Any) -> Found:
    """Return the results of `ask`, with the numbers of answers that CoreDNS has given meanwhile."""
    before = counters(metrics)
    heard: Found = ask()
    after = counters(metrics)
    answers = {rcode: number - before.get(rcode, 0) for rcode, number in after.items()}
    return {**heard, "answers": {rcode: number for rcode, number in answers.items() if number}}


def main(words: Mapping[str, Any]) -> Found:
    """Run the requested lookup."""
    what = {k: v for k, v in words.items() if k not in ("do", "metrics")}
    known = {"every": every, "dial": dial, "until": until, "late": late, "early": early}
    ask = partial(known[words["do"]], **what)
    return counted(words["metrics"], ask) if "metrics" in words else ask()


def of_the_run() -> Sequence[str]:
    """Return the hosts of TF_CONFIG."""
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return [each.rpartition(":")[0] for hosts in cluster.values() for each in hosts]


if __name__ == "__main__":
    said = {"do": "every", "hosts": of_the_run()} if sys.argv[1] == "all" else None
    print(json.dumps(main(said or json.loads(sys.argv[1]))), flush=True)
