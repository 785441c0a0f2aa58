"""What machines ask: whether the server lives, whether it can serve, and numbers to plot."""

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from jobq.api import problems
from jobq.api.dependencies import FeedOfApp, Operator, StoreOfApp
from jobq.api.messages import Health
from jobq.job import Stats

router = APIRouter()


@router.get("/health", summary="Is the server alive?", responses=problems.documented("/health"))
async def health() -> Health:
    """Say so; nothing else is looked at."""
    return Health(status="ok")


@router.get(
    "/ready",
    summary="Can the server serve?",
    response_model=Health,
    responses=problems.documented(
        "/ready", problems.STOPPING, problems.STORE_BUSY, problems.STORE_UNAVAILABLE
    ),
)
def ready(request: Request, store: StoreOfApp, feed: FeedOfApp) -> Response:
    """Say so if the store can be read and the server is not about to end."""
    if feed.stopping:
        return problems.answer(request, problems.STOPPING)
    store.last_event()
    return Response('{"status":"ok"}', media_type="application/json")


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=PlainTextResponse,
    dependencies=[Operator],
    responses=problems.documented(
        "/metrics", *problems.OPERATOR, problems.STORE_BUSY, problems.STORE_UNAVAILABLE
    ),
)
def metrics(store: StoreOfApp) -> Response:
    """Give the counts of jobs in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(store.stats()))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Jobs(Collector):
    """What Prometheus is told of a store."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        jobs = GaugeMetricFamily("jobq_jobs", "Jobs by kind and status.", labels=["kind", "status"])
        for kind, counts in self._stats.kinds.items():
            for status, number in counts.items():
                jobs.add_metric([kind, status], number)
        yield jobs
        yield GaugeMetricFamily(
            "jobq_oldest_waiting_seconds",
            "Age of the oldest queued job; 0 without one.",
            value=self._stats.oldest_waiting_seconds or 0.0,
        )
        yield GaugeMetricFamily(
            "jobq_finished_last_minute",
            "Jobs that became done, failed or cancelled in the last 60 s.",
            value=self._stats.finished_last_minute,
        )
