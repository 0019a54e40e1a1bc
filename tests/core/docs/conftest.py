"""The page's scripts, for the tests of what they make of what they are given."""

from __future__ import annotations

import pytest

from tests.support.node import Scripts


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))
