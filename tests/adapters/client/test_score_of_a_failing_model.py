"""The command that scores a file, where the model fails with each row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.client.score import main
from tests.support.threads import serving


def test_a_model_that_fails_with_each_row_is_not_asked_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def fails(a: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        calls.append(len(a))
        if (a < 0).any():
            raise ValueError
        return a

    server = InferenceServer()
    server.register("fails", fails)
    (tmp_path / "rows.csv").write_text("a\n" + "-1.5\n" * 856)
    (tmp_path / "mixed.csv").write_text("a\n" + "-1.5\n1.5\n" * 32)
    out = tmp_path / "s.csv"
    with serving(OIPApp(server, path="/v2")) as port:
        url = f"http://127.0.0.1:{port}/v2"
        assert main([url, "fails", str(tmp_path / "rows.csv"), "--out", str(out)]) == 1
        assert capsys.readouterr().err == (
            f"0 of 856 rows are scored: {out}; stopped, as the model fails with rows 1 to 256, and with 8 of them alone: the server "
            "answered with the status 500: model 'fails' failed: see the server's log; --resume goes on from here\n"
        )
        assert calls == [256, *[1] * 8]
        assert main([url, "fails", str(tmp_path / "mixed.csv"), "--out", str(tmp_path / "t.csv")]) == 1
    assert "32 of 64 rows are scored" in capsys.readouterr().err
