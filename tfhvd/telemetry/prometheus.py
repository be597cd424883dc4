"""Metrics for Prometheus: on a port, or in a file that node_exporter's textfile collector reads.

The package prometheus_client is imported only if a setting asks for one of these.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.telemetry.metrics import read
from tfhvd.telemetry.metrics_server import MetricsServer

_logger = logging.getLogger("tfhvd")
_WRITE_SECONDS = 15.0  # a usual scrape interval of Prometheus


class Exporter:
    """Exports the metrics of this process while it takes part in a job."""

    def __init__(self) -> None:
        self._rank = 0
        self._registry: Any = None
        self._server: MetricsServer | None = None
        self._file = ""
        self._writer: threading.Thread | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Begins the exports of TFHVD_METRICS_PORT and TFHVD_METRICS_FILE.

        If an export is not possible, it logs an error, and the training continues.
        """
        topology = membership.require_topology()
        config = load_native().config()
        wanted = "{rank}" in config.metrics_file or topology.rank == 0
        path = config.metrics_file.replace("{rank}", str(topology.rank)) if wanted else ""
        if not config.metrics_port and not path:
            return
        try:
            import prometheus_client
        except ImportError:
            _logger.error(
                "rank %d exports no metrics: the package prometheus_client is not installed. "
                "Type: pip install prometheus_client",
                topology.rank,
            )
            return
        self._rank = topology.rank
        self._registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        if config.metrics_port:
            self._serve(config.metrics_address, config.metrics_port + topology.local_rank)
        if path:
            self._begin_to_write(path)

    def stop(self) -> None:
        """Ends the exports, and writes the file a last time."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._writer is not None:
            self._over.set()
            self._writer.join()
            self._writer = None
            self._write()
        self._registry = None

    def collect(self) -> Iterator[Any]:
        """Yields the present metrics; prometheus_client calls this method."""
        from prometheus_client.core import CounterMetricFamily

        now = read()
        rank = str(self._rank)

        def family(name: str, meaning: str, values: dict[str, float], label: str = "") -> Any:
            labels = ["on_rank", label] if label else ["on_rank"]
            made = CounterMetricFamily(f"tfhvd_{name}", meaning, labels=labels)
            for key, value in values.items():
                made.add_metric([rank, key] if label else [rank], value)
            return made

        yield family("collectives_submitted", "Collectives that were called.", {"": now.submitted})
        yield family(
            "collectives",
            "Collectives that have ended.",
            {"ok": now.completed, "failed": now.failed},
            "outcome",
        )
        yield family("tensors", "Tensors that all ranks were ready for.", {"": now.tensors})
        yield family("bytes", "Bytes of these tensors.", {"": now.bytes})
        yield family("calls", "Operations that carried them.", {"": now.calls})
        yield family("fused_tensors", "Tensors that shared one.", {"": now.fused_tensors})
        yield family(
            "rounds",
            "Agreements of all ranks on what runs next.",
            {"messages": now.rounds - now.locked_rounds, "votes": now.locked_rounds},
            "by",
        )
        yield family("locked_steps", "Steps that were locked.", {"": now.locked_steps})
        yield family("unlocked_steps", "Those that have ended.", dict(now.unlocked), "reason")
        yield family("inline_runs", "Buckets run by a calling thread.", {"": now.inline_runs})
        yield family(
            "announcements",
            "Collectives announced to rank 0.",
            {"number": now.cache_hits, "name": now.cache_misses},
            "by",
        )
        waits = {str(r): seconds for r, seconds in now.waits_by_rank.items() if r != self._rank}
        yield family(
            "wait_seconds",
            "Seconds waited, by the rank that was the last to be ready.",
            {**waits, "unknown": now.waits_unknown},
            "rank",
        )

    def _serve(self, address: str, port: int) -> None:
        from prometheus_client import make_wsgi_app

        try:
            if port > 65535:
                raise OSError("there is no such port")
            self._server = MetricsServer(address, port, make_wsgi_app(self._registry))
        except OSError as error:
            _logger.error(
                "rank %d serves no metrics on port %d of %s: %s. Choose another "
                "TFHVD_METRICS_PORT, or TFHVD_METRICS_ADDRESS.",
                self._rank,
                port,
                address,
                error,
            )

    def _begin_to_write(self, path: str) -> None:
        self._file = path
        self._over.clear()
        if not self._write():
            return
        self._writer = threading.Thread(target=self._write_often, name="tfhvd metrics", daemon=True)
        self._writer.start()

    def _write_often(self) -> None:
        while not self._over.wait(_WRITE_SECONDS):
            if not self._write():
                return

    def _write(self) -> bool:
        """Replaces the file by a complete new one; returns whether it could be written."""
        from prometheus_client import write_to_textfile

        try:
            write_to_textfile(self._file, self._registry)
        except OSError as error:
            _logger.error(
                "rank %d writes no metrics into '%s': %s. Choose another TFHVD_METRICS_FILE.",
                self._rank,
                self._file,
                error,
            )
            return False
        return True


exporter = Exporter()  # this process's
membership.at_leaving(exporter.stop)
