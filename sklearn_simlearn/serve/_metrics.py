"""Metrics of the service in the format of Prometheus."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

# Upper limits of the histogram bins of times, in seconds.
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Counts and times of requests, and the sizes of the indexes.

    Parameters
    ----------
    indexes : dict of ServedIndex
    """

    def __init__(self, indexes):
        self._registry = CollectorRegistry()
        options = {"registry": self._registry, "namespace": "simlearn"}
        self._requests = Counter(
            "requests",
            "Requests by action and status.",
            ["action", "status"],
            **options,
        )
        self._seconds = Histogram(
            "request_seconds",
            "Seconds per request, by action.",
            ["action"],
            buckets=SECONDS,
            **options,
        )
        self._running = Gauge("requests_running", "Requests in progress.", **options)
        items = Gauge("items", "Number of items.", ["index"], **options)
        changes = Gauge(
            "journal_changes", "Changes since the last save.", ["index"], **options
        )
        for name, served in indexes.items():
            items.labels(name).set_function(lambda served=served: len(served.index))
            if served.is_writable:
                changes.labels(name).set_function(served.count_changes)

    def start(self):
        """Count a request that starts."""
        self._running.inc()

    def finish(self, action, status, seconds):
        """Count a request that ends."""
        self._running.dec()
        self._requests.labels(action, status).inc()
        self._seconds.labels(action).observe(seconds)

    def show(self):
        """Return all metrics as bytes."""
        return generate_latest(self._registry)
