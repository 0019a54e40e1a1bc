"""The guide's model of data frames inside a FastAPI application, for a server process of its own."""

from __future__ import annotations

import pandas as pd
from fastapi import FastAPI

from oip_asgi import InferenceServer, OIPApp

server = InferenceServer()


@server.model("score")
def score(df: pd.DataFrame) -> pd.DataFrame:
    """The rows, and who of them is grown up."""
    return df.assign(adult=df["Age"] >= 18)


app = FastAPI()
OIPApp(server).install(app)
