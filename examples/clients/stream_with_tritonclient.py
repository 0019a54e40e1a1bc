"""Prints a text while a server writes it, with tritonclient's stream over gRPC.

python examples/clients/stream_with_tritonclient.py [127.0.0.1:8001] [text]
"""

from __future__ import annotations

import sys
from queue import SimpleQueue
from typing import Any

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput


def main(address: str = "127.0.0.1:8001", text: str = "The value of") -> None:
    prompt = InferInput("text_input", [1], "BYTES").set_data_from_numpy(np.array([text.encode()], object))
    count = InferInput("max_words", [1], "INT64").set_data_from_numpy(np.array([20]))
    answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    print(text, end="", flush=True)
    with InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        # without this the server does not say which response is the last
        client.async_stream_infer("writer", [prompt, count], enable_empty_final_response=True)
        while True:
            result, error = answers.get()
            if error is not None:
                sys.exit(str(error))
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
            print(result.as_numpy("text_output")[0].decode(), end="", flush=True)
        client.stop_stream()
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
