"""Paths: what is behind a mount, and in which encoded form. Knows no routes."""

from __future__ import annotations

from urllib.parse import quote, unquote


def prefix_of(path: str) -> str:
    """A mount's path as it is compared, without a slash at its end."""
    if not path.startswith("/"):
        raise ValueError(f'path={path!r} must begin with a slash, such as "/v2"')
    return path.rstrip("/")


def behind(path: str, mount: str) -> str | None:
    """What is behind a mount's path, such as "/health/live" or ""; None for a path that is not under it, as "/v2x" is not under "/v2"."""
    if not path.startswith(mount) or path[len(mount) : len(mount) + 1] not in ("", "/"):
        return None
    return path[len(mount) :]


def encoded(path: str, target: str | None) -> str:
    """The percent-encoded form of a path behind the mount."""
    if target is not None and "%" not in target and "%" not in path and not path.endswith("/"):
        return path  # as nearly always
    raw = (target or "").partition("?")[0]
    if raw and not raw.endswith(("/", "%2F", "%2f")):
        path = path.removesuffix("/")  # Litestar adds one
    left, place = len(path), len(raw)
    while left and (slash := raw.rfind("/", 0, place)) >= 0:
        segment = "/" + unquote(raw[slash + 1 : place])
        if not path.endswith(segment, 0, left):
            break
        left, place = left - len(segment), slash
    return quote(path) if left else raw[place:]
