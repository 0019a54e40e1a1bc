"""The model process: one copy of a table of 200 MB, asked by all web workers. Their requests share calls.

uvicorn model_app:app --uds /tmp/model.sock    or by start.py
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oip_asgi import InferenceServer, OIPApp, TensorSpec

ROWS, COLUMNS = 200_000, 256


def load_table() -> npt.NDArray[np.float32]:
    """An embedding of each word: 205 MB. A real one is read from a file."""
    return np.add.outer(np.arange(ROWS, dtype=np.float32), np.arange(COLUMNS, dtype=np.float32) / 1000)


TABLE = load_table()

server = InferenceServer("model process")


@server.model(
    "embed",
    inputs=[TensorSpec("word", "INT64", [-1])],
    outputs=[TensorSpec("embedding", "FP32", [-1, COLUMNS])],
    max_batch_size=256,
    max_queue=1000,
)
def embed(word: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """The rows of some words, of the requests of all workers that wait."""
    return TABLE[word % ROWS]


app = OIPApp(server, path="/v2")
