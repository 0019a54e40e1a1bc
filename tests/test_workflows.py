"""The workflows for the repository's host run what there is to run, and publish nothing."""

from __future__ import annotations

import configparser
from typing import Any

import pytest

from tests.support.processes import ROOT

yaml = pytest.importorskip("yaml")


def test_the_workflow_runs_all_checks_and_builds_site_and_distribution() -> None:
    workflow: Any = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())
    steps = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in workflow["jobs"].items()}
    assert steps == {"checks": ["bash .ci/run"], "site-and-distribution": ["python -m pip install tox tox-uv", "tox run -e docs,package"]}
    assert (ROOT / ".ci/run").exists()
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    assert {"testenv:docs", "testenv:package"} <= set(tox.sections())
    assert workflow["permissions"] == {"contents": "read"}  # so it cannot publish
