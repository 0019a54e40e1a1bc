"""The benchmark of the first request measures, and says which libraries are not there."""

from __future__ import annotations

import pytest

from tests.lab.bench import warm_up


def test_it_prints_a_row_for_each_model_that_can_be_loaded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    loads = {"plain": (warm_up.load_plain, ()), "other": (warm_up.load_plain, ("a_module_of_nobody",))}
    monkeypatch.setattr(warm_up, "LOADS", loads)
    warm_up.main(["--processes", "1"])
    missing, head, _, row = capsys.readouterr().out.splitlines()
    assert missing == "other is left out: a_module_of_nobody is not installed"
    assert head.split("|")[2:4] == [" first request ", " second "]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "plain"
    assert all(float(cell) > 0 for cell in cells[1:])


@pytest.mark.parametrize("name", ["ONNX Runtime", "torch"])
def test_each_model_answers(name: str) -> None:
    for module in warm_up.LOADS[name][1]:
        pytest.importorskip(module)
    assert len(warm_up.measure(name, warm_up=True)) == 2
