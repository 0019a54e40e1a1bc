"""A server process for clients that are generated: `python -m tests.support.generated_site` prints its address once it serves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.run_server import run_uvicorn


class Car(msgspec.Struct):
    power: float
    origin: Literal["USA", "Japan"] = "USA"
    trips: Annotated[list[float], msgspec.Meta(max_length=3)] = []


class Price(msgspec.Struct):
    price: float
    label: str


def price(cars: list[Car]) -> list[Price]:
    return [Price(car.power * 100 + sum(car.trips), f"from {car.origin}") for car in cars]


def make_server() -> InferenceServer:
    server = InferenceServer("generated", "1")
    a, b = TensorSpec("a", "FP32", [-1]), TensorSpec("b", "FP32", [-1])
    x, y = (TensorSpec(name, "FP32", [-1, 2]) for name in "xy")
    server.register("add", lambda a, b: {"total": a + b}, inputs=[a, b])
    server.register("turned", lambda x: -x, inputs=[x], outputs=[y])
    upper, lower = (TensorSpec(name, "INT64", [-1]) for name in "Xx")
    server.register("Turned", lambda **inputs: {"x": inputs["X"] + 1}, inputs=[upper], outputs=[lower])
    server.register("prices", price)
    return server


def main() -> None:
    application: Any = OIPApp(make_server(), path="/v2")
    run_uvicorn(application)


if __name__ == "__main__":
    main()
