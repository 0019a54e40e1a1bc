"""A FastAPI application whose model takes a data frame and answers with one: which of three cultivars a wine was made from.

python examples/frame_app.py    serves on http://127.0.0.1:8000; client_httpx2.py and client_requests.py beside this file ask it
"""

from __future__ import annotations

import pandas as pd
import uvicorn
from fastapi import FastAPI
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oip_asgi import InferenceError, InferenceServer, OIPApp

wines = load_wine(as_frame=True)
classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(wines.data, wines.target)
server = InferenceServer(name="wines")


@server.model("score")
def score(df: pd.DataFrame) -> pd.DataFrame:
    """The cultivar of each row, and how probable it is; columns may come in any order."""
    missing = wines.data.columns.difference(df.columns)
    if len(missing):
        raise InferenceError(f"columns are missing: {', '.join(missing)}", status=422)
    chances = classifier.predict_proba(df[wines.data.columns])
    return pd.DataFrame({"cultivar": wines.target_names.astype(str)[chances.argmax(axis=1)], "probability": chances.max(axis=1)})


app = FastAPI()
OIPApp(server).install(app)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=8000)
