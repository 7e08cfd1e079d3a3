"""Numbers of a controller as Prometheus reads them, by its own library.

Promises names that begin with `tfcluster_`; what is measured is each controller's own.
Ref: https://prometheus.github.io/client_python/collector/custom/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "tfcluster"


def numbered(numbers: Mapping[str, float]) -> Iterator[Metric]:
    """Single numbers; those that are called `…_total` only grow."""
    for name, value in numbers.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        words = name.removesuffix("_total").replace("_", " ").capitalize() + "."
        yield kind(f"{PREFIX}_{name}", words, value=value)


def labelled(name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
    """One number for each value of a label; of these there must be few."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", words, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


class Numbers(Collector):
    """Single numbers as a collector."""

    def __init__(self, numbers: Mapping[str, float]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        return numbered(self._numbers)


def told(collectors: Iterable[Collector]) -> str:
    """What Prometheus is told of these."""
    registry = CollectorRegistry()
    for each in collectors:
        registry.register(each)
    return generate_latest(registry).decode().rstrip("\n")
