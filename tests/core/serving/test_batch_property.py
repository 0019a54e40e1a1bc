"""Whether requests share calls or not, each is answered the same: random ones, good and bad, from two event loops and threads at once."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.batch_models import make_server
from tests.support.batch_rounds import Servers, play


@pytest.fixture(scope="module", params=[0.0, 0.003], ids=["no delay", "a delay"])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    logging.getLogger("oip_asgi").setLevel(logging.CRITICAL)
    servers = Servers(make_server(is_batched=True, delay=request.param))
    yield servers
    servers.batched.stop()
    logging.getLogger("oip_asgi").setLevel(logging.NOTSET)
    assert servers.executions() < servers.answered  # some did share calls, or this has shown nothing


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dice=st.randoms(use_true_random=False))
def test_each_answer_is_that_of_the_model_without_batches(servers: Servers, dice: random.Random) -> None:
    play(servers, dice)
