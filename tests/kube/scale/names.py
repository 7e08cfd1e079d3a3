"""DNS at 600 tasks: a real pod asks CoreDNS for the names of fake pods, as tasks would. It makes
only a share of the lookups of 600 tasks; the note of each row states this share. CoreDNS counts its
answers.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from kubenode import dns
from kubenode.cluster import Cluster
from kubenode.commands import say
from kubenode.node import Node
from kubenode.processes import running
from support.kube.kubectl import Kubectl

from benchmarks.rows import Row, bounded, compared
from tfcluster_magic.kube.api.client import Object

from .api_watch import counting
from .real import IMAGE_PULL, METRICS, ask, asker
from .site import Site, cpu_of
from .variants import BY_HAND, PS, RUN, TASKS, WORKERS, where

SHARE = 20
"""Only every SHARE-th task is simulated, because all tasks would take minutes."""
Values = dict[str, list[float]]


def names(site: Site, rounds: int) -> list[Row]:
    """Measure lookups before and after the names exist, by one task and by all, with and without
    device filters.
    """
    node, values = Cluster().first, defaultdict[str, list[float]](list)
    with dns.caching(node):
        for number in range(1, rounds + 1):
            with site.namespace("names") as namespace:
                kubectl = site.kubectl.within(namespace)
                kubectl.apply(asker(site.policy.default_image))
                try:
                    _round(site, node, kubectl, values)
                finally:
                    kubectl.delete("pod", "asker")
            told = {what: round(each[-1], 3) for what, each in values.items()}
            say(f"round {number}: {told}")
    return _rows(values)


def _round(site: Site, node: Node, kubectl: Kubectl, values: Values) -> None:
    kubectl.running("asker", IMAGE_PULL)
    _late(site, node, kubectl, values)
    ps, workers = hosts()
    metrics = f"http://{node.ip}:{METRICS}/metrics"
    alone = ask(kubectl, do="every", hosts=[*ps, *workers], metrics=metrics)
    assert alone["addresses"] == TASKS - alone["failed"], alone
    values["failed"].append(alone["failed"])
    values["alone"].append(alone["seconds"])
    values["queries"].append(sum(alone["answers"].values()) / TASKS)
    for what, filters in (("filters", True), ("everybody", False)):
        began = cpu_of(running(node.folder / "servers" / "coredns"))
        heard = ask(
            kubectl, do="dial", ps=ps, workers=workers, share=SHARE, filters=filters,
            metrics=metrics,
        )  # fmt: skip
        used = cpu_of(running(node.folder / "servers" / "coredns")) - began
        answered = sum(heard["answers"].values())
        values[f"{what} queries"].append(answered * SHARE)
        values[f"{what} cpu"].append(used * SHARE)
        values[f"{what} rate"].append(answered / heard["seconds"])
        values["wrong"].append(answered - heard["answers"].get("NOERROR", 0) + heard["failed"])


def hosts() -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of parameter servers and workers as a task uses them."""
    found = [
        [f"{RUN}-{kind}-{index}.{RUN}" for index in range(count)]
        for kind, count in (("ps", PS), ("worker", WORKERS))
    ]
    return found[0], found[1]


def _late(site: Site, node: Node, kubectl: Kubectl, values: Values) -> None:
    """Measure the delay until each DNS server resolves a new name that it has reported as missing
    before.

    For this, create the objects of a launch without the Service that defines the name, look up the
    name, and then create the Service.
    """
    posts = BY_HAND.posts(site)
    namespace = kubectl.namespace
    with counting(site.api, namespace, selector="tfcluster.dev/name") as pods:
        for each in posts:
            if each["kind"] != "Service":
                site.api.create(where(each, namespace), each)
        pods.wait(TASKS, "all tasks run")
    name = f"{hosts()[1][-1]}.{namespace}.svc.cluster.local"
    servers = {"ours": (dns.ADDRESS, 53), "caching": (node.ip, dns.CACHING_PORT)}
    said = ask(kubectl, do="early", name=name, servers=servers)
    assert set(said.values()) == {3}, said  # NXDOMAIN
    (service,) = _of_kind(posts, "Service")
    began = time.time()
    site.api.create(where(service, namespace), service)
    heard = ask(kubectl, do="late", name=name, servers=servers)
    for server in servers:
        values[f"late {server}"].append(heard[server] - began)
    ask(kubectl, do="until", hosts=[*hosts()[0], *hosts()[1]])


def _of_kind(posts: Sequence[Object], kind: str) -> Sequence[Object]:
    return [each for each in posts if each["kind"] == kind]


def _rows(values: Values) -> list[Row]:
    middle = {what: sorted(each)[len(each) // 2] for what, each in values.items()}
    pairs = PS * WORKERS
    load = f"{pairs} pairs of ps and worker with filters, {TASKS * (TASKS - 1)} without"
    share = f"every {SHARE}th task asked"
    rate = f"{middle['everybody rate']:.0f} answers a second beside who asks"
    return [
        bounded("names_failed", "names", values["failed"], at_most=0, note=f"of {TASKS}"),
        bounded("names_wrong", "answers", values["wrong"], at_most=0, note="under load"),
        Row("names_all", middle["alone"], "s", note=f"until one pod has asked for all {TASKS}"),
        bounded(
            "names_queries", "queries", values["queries"], at_most=2,
            note="for each name: IPv4 and IPv6, and nothing of the search list",
        ),
        compared(
            "names_load", "queries", values["filters queries"], values["everybody queries"],
            note=f"with device filters beside without: {load}; {share}",
        ),
        compared(
            "names_cpu", "s", values["filters cpu"], values["everybody cpu"],
            note=f"of one CoreDNS, for all of it; {rate}",
        ),
        compared(
            "names_late", "s", values["late ours"], values["late caching"],
            note="a name that was asked for too early, from its Service on; beside `cache 30`",
        ),
    ]  # fmt: skip
