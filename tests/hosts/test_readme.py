"""The README's snippets for hosts that not every environment has are run, as they are."""

from __future__ import annotations

from typing import Any

from django.core.wsgi import get_wsgi_application
from django.test import override_settings

from tests.support.host_ways import configure_django
from tests.support.readme import SNIPPETS
from tests.support.ways import Request, Way, over_asgi, over_wsgi


def names_of(containing: str) -> dict[str, Any]:
    [snippet] = [snippet for snippet in SNIPPETS if containing in snippet]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(snippet, "README.md", "exec"), names)
    return names


def serves(way: Way) -> bool:
    return all(way(Request("GET", path)).status == 200 for path in ("", "/", "/health/live", "/models"))


def test_litestar() -> None:
    assert serves(over_asgi(names_of("import Litestar")["app"], "/v2"))


def test_django() -> None:
    configure_django()
    with override_settings(ROOT_URLCONF=tuple(names_of("# urls.py")["urlpatterns"])):
        assert serves(over_wsgi(get_wsgi_application(), "/v2"))
