"""The process around a controller: command line, log, metrics, probes, start and end.

The controller acts only after all caches have been filled and the Lease acquired. Obstacles are
logged once and shown at /readyz. On SIGTERM the controller finishes the work in progress and
releases the Lease.

Ref: https://kubernetes.io/docs/reference/using-api/health-checks/ Ref:
https://prometheus.github.io/client_python/collector/custom/
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..api.client import Api, ApiError
from . import leader_election
from .leader_election import Leader


def start_logging(*, as_json: bool) -> None:
    """Configure the log as text or as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(as_json))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


class OneLineFormatter(logging.Formatter):
    """Formats a record on one line: time, level and text, or the same three fields as JSON."""

    def __init__(self, as_json: bool) -> None:
        super().__init__("%(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, even if its text has several."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        at += f".{int(record.msecs):03}Z"
        said = super().format(record)
        if self._as_json:
            entry = {"time": at, "level": record.levelname, "logger": record.name, "message": said}
            return json.dumps(entry, ensure_ascii=False)
        return f"{at} {record.levelname} {' | '.join(said.splitlines())}"


# Metrics.

METRIC_PREFIX = "tfcluster"


def number_metrics(numbers: Mapping[str, float], texts: Mapping[str, str]) -> Iterator[Metric]:
    """Yield a metric for each number; metrics whose names end in `_total` are counters."""
    for name, value in numbers.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        yield kind(f"{METRIC_PREFIX}_{name}", texts[name], value=value)


def labelled_metric(name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with one number for each value of a label. There must be few values,
    because each becomes a time series.
    """
    family = GaugeMetricFamily(f"{METRIC_PREFIX}_{name}", words, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


class NumberCollector(Collector):
    """A Prometheus collector of metrics that are single numbers without labels."""

    def __init__(self, numbers: Mapping[str, float], texts: Mapping[str, str]) -> None:
        self._numbers, self._texts = numbers, texts

    def collect(self) -> Iterator[Metric]:
        """Yield a metric for each number."""
        return number_metrics(self._numbers, self._texts)


def metrics_text(collectors: Iterable[Collector]) -> str:
    """Return the metrics of these collectors in the text format of Prometheus."""
    registry = CollectorRegistry()
    for each in collectors:
        registry.register(each)
    return generate_latest(registry).decode().rstrip("\n")


# Probes: /healthz, /readyz and /metrics for the kubelet and Prometheus. The answers need no request
# to the API server. Healthy means that all threads run. Ready means that all objects were listed
# and this process leads.

ProbeAnswer = tuple[bool, str]


class ProbeServer:
    """The HTTP server of probes.

    Args:
        port: the port to listen on; 0 takes a free port and stores it in `port`.
        answers: for each path, a function that returns whether all is well, and a text.
    """

    def __init__(self, port: int, answers: dict[str, Callable[[], ProbeAnswer]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer requests for the known paths; answer any other with 404."""
                ask = answers.get(self.path.partition("?")[0])
                well, text = ask() if ask is not None else (False, "there is nothing here")
                content = (text + "\n").encode()
                self.send_response(404 if ask is None else 200 if well else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                """Log nothing: probes come every second."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )

    def start(self) -> None:
        """Start answering."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


# The command line, and the exit codes.

FAILURE, LOST_LEASE = 1, 3
"""A pair of exit codes: of a process that could not start, and of one that lost the Lease."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every controller to a command line."""
    parser.add_argument("--health-port", type=int, default=8080, help="0: any free one")
    parser.add_argument("--identity", default="", help="its name in the Lease; else its pod's")
    parser.add_argument("--kubeconfig", default="", help="else KUBECONFIG, or the pod's account")
    parser.add_argument("--context", default="", help="of the kubeconfig")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")


def apply_options(asked: argparse.Namespace) -> None:
    """Apply the log format and the kubeconfig."""
    start_logging(as_json=asked.log_format == "json")
    if asked.kubeconfig:
        os.environ["KUBECONFIG"] = asked.kubeconfig


def lease_identity(asked: argparse.Namespace) -> str:
    """Return the identity for the Lease: the option's, else the pod's, else a random one."""
    return asked.identity or os.environ.get("POD_UID") or leader_election.local_identity()


def exit_without_lease() -> NoReturn:
    """Exit at once: the Lease is lost, and a turn in progress could write at the same time as the
    new leader.
    """
    os._exit(LOST_LEASE)


log = logging.getLogger("tfcluster")


class RunnableController(Protocol):
    """A controller that a process can run."""

    def follow(self) -> None:
        """Start the watches. If this raises ApiError, the caller calls it again."""

    def begin(self) -> None:
        """Start acting on the watched objects."""

    def end(self) -> None:
        """Stop acting."""

    @property
    def synced(self) -> bool:
        """Whether every cache has its first list of objects."""

    @property
    def alive(self) -> bool:
        """Whether all threads are alive."""

    @property
    def problems(self) -> list[str]:
        """The reasons why the caches are incomplete."""


class ControllerProcess:
    """The process of a controller, with its election, probes and metrics.

    Args:
        api: the connection to the API server.
        leader: the candidate in the election.
        controller: what to run.
        port: the port of the probes; 0 takes a free one. A port in use raises OSError.
        metrics: returns the metrics as text.
    """

    def __init__(
        self,
        api: Api,
        leader: Leader,
        controller: RunnableController,
        port: int,
        metrics: Callable[[], str],
    ) -> None:
        self._api, self._leader, self._controller = api, leader, controller
        self._enough = threading.Event()
        self._follows = False
        self._began = time.monotonic()
        answers = {
            "/healthz": self._healthy,
            "/readyz": self._ready,
            "/metrics": lambda: (True, metrics()),
        }
        self._health = ProbeServer(port, answers)

    def work(self) -> int:
        """Watch, lead and act until a signal; then stop and return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._enough.set())
        self._health.start()
        log.info("following %s; health on port %d", self._api.server, self._health.port)
        threading.Thread(target=self._lead, name="lead", daemon=True).start()
        while not self._enough.wait(3600):
            pass
        log.info("ending")
        self._controller.end()
        self._leader.release()
        self._health.stop()
        return 0

    def _lead(self) -> None:
        while not self._followed():
            if self._enough.wait(1.0):
                return
        told: list[str] = []
        while not self._controller.synced:
            problems = self._controller.problems
            if problems and problems != told:
                log.error("not ready: %s", "; ".join(problems))
                told = problems
            if self._enough.wait(0.02):
                return
        if self._leader.acquire():
            self._controller.begin()
            log.info("ready after %.2f s", time.monotonic() - self._began)

    def _followed(self) -> bool:
        try:
            self._controller.follow()
        except ApiError as error:
            log.error("not ready: %s", error.message or error.reason)
            return False
        self._follows = True
        return True

    def _healthy(self) -> ProbeAnswer:
        alive = (self._controller.alive or not self._follows) and self._leader.alive
        return (True, "ok") if alive else (False, "a thread has died")

    def _ready(self) -> ProbeAnswer:
        if not self._controller.synced:
            return False, "; ".join(self._controller.problems) or "it has not seen everything yet"
        return (True, "ok") if self._leader.leads() else (False, "another process leads")
