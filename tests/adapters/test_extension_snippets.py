"""The snippet of the examples' README about what Triton's clients ask, run as it is."""

from __future__ import annotations

import json
from typing import Any

from tests.support.readme import SNIPPETS
from tests.support.ways import EXTENSIONS, Request, over_asgi


def test_the_snippet_about_what_tritons_clients_ask() -> None:
    [snippet] = [snippet for snippet in SNIPPETS if "ResponseCache(" in snippet]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(snippet, "README.md", "exec"), names)
    send = over_asgi(names["app"], "")
    image = {"name": "image", "datatype": "FP32", "shape": [1], "data": [0]}
    asked = {"inputs": [image], "outputs": [{"name": "scores", "parameters": {"classification": 2}}], "parameters": {"priority": 1}}
    for _ in range(2):
        answer = send(Request("POST", "/models/pets/infer", (), json.dumps(asked).encode()))
        assert json.loads(answer.body)["outputs"][0]["data"] == ["0.700000:1:dog", "0.200000:2:fox"]
    [stats] = json.loads(send(Request("GET", "/models/pets/stats")).body)["model_stats"]
    assert (stats["execution_count"], stats["inference_stats"]["cache_hit"]["count"]) == (1, 1)
    extensions = json.loads(send(Request("GET", "")).body)["extensions"]
    assert extensions == sorted([*json.loads(EXTENSIONS), "schedule_policy"])
