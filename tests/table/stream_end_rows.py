"""Rows of how streams end, if a client asks for it; and of the request's own `timeout`, which counts nowhere by itself."""

from __future__ import annotations

from tests.table.stream_row import OIP_COUNT, OIP_PLAIN, WORDS, StreamRow, flat, refused, streamed, tensor, whole


def end_rows() -> list[StreamRow]:
    wants, item, last = {"triton_enable_empty_final_response": True}, {"triton_final_response": False}, {"triton_final_response": True}
    counted = [whole("count", tensor("output_0", [number], "INT64"), id="7", parameters=item) for number in range(2)]
    asked = {"id": "7", "parameters": wants}
    return [
        streamed(
            "the end of a stream",
            "words/generate_stream",
            {**WORDS, **wants},
            flat("words", text_output="to", **item),
            flat("words", text_output="be", **item),
            flat("words", **last),
        ),
        streamed(
            "the end in infer_stream", "count/infer_stream", {**OIP_COUNT, **asked}, *counted, whole("count", id="7", parameters=last)
        ),
        streamed(
            "the end of no items",
            "yields%20nothing/generate_stream",
            {"x": 1, "id": "7", **wants},
            {"id": "7", **flat("yields nothing", **last)},
        ),
        streamed("the end of a plain model", "plain/generate_stream", {"x": 4, **wants}, flat("plain", output_0=8, **last)),
        streamed(
            "the end of a plain model in infer_stream",
            "plain/infer_stream",
            {**OIP_PLAIN, **asked},
            whole("plain", tensor("output_0", [4], "INT64"), id="7", parameters=last),
        ),
        streamed(
            "an error is the end",
            "raises%20later/generate_stream",
            {"x": 1, **wants},
            flat("raises later", output_0=1, **item),
            {"error": "the teapot is empty"},
        ),
        streamed("no end asked for", "count/generate_stream", {"n": 1, **dict.fromkeys(wants, False)}, flat("count", output_0=0)),
        StreamRow("no end where there is one answer", "plain/generate", {"x": 4, **wants}, 200, flat("plain", output_0=8)),
        streamed(
            "an item that the model marks",
            "the%20last/generate_stream",
            {"n": 4},
            flat("the last", output_0=4),
            flat("the last", output_0=4, **last),
        ),
        streamed("a timeout of 30 us", "count/generate_stream", {"n": 1, "timeout": 30}, flat("count", output_0=0)),
        StreamRow("a timeout of 30 us, once", "plain/generate", {"x": 4, "timeout": 30}, 200, flat("plain", output_0=8)),
        refused(
            "a timeout that is no integer",
            "count/generate_stream",
            {"n": 1, "timeout": 1.5},
            "parameters.timeout is 1.5: expected an integer, 0 or more, in microseconds",
        ),
    ]
