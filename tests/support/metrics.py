"""What a server's metrics say, which a host's operator reads too: whether calls run or wait, and how requests ended."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from oip_asgi import InferenceServer
from oip_asgi.prometheus import instrument


def _read(server: InferenceServer, family: str) -> Iterator[Sample]:
    registry = CollectorRegistry(auto_describe=False)
    instrument(server, registry)
    return (sample for metric in registry.collect() if metric.name == family for sample in metric.samples)


def is_idle(server: InferenceServer) -> bool:
    """Whether no call runs or waits, of any model."""
    return not any(sample.value for sample in _read(server, "oip_requests_in_progress"))


def waiting_calls(server: InferenceServer, name: str = "m") -> int:
    """How many calls of a model wait for a slot."""
    samples = _read(server, "oip_requests_in_progress")
    return sum(int(each.value) for each in samples if (each.labels["model"], each.labels["state"]) == (name, "waiting"))


def outcomes(server: InferenceServer, name: str = "m") -> dict[str, int]:
    """How often requests for a model ended in each way; nothing that is 0."""
    samples = [each for each in _read(server, "oip_requests") if each.labels["model"] == name]
    return {each.labels["outcome"]: int(each.value) for each in samples if each.value}
