"""Write the figures into the guide."""

from __future__ import annotations

from tests.support.processes import ROOT

from . import batch, request, states

FOLDER = ROOT / "examples" / "guide" / "figures"
FIGURES = {"request": request.draw, "states": states.draw, "batch": batch.draw}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()))
