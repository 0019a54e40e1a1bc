"""Chromium without a screen: the `chromium` on the PATH, or else Debian's package in the folder CHROMIUM."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright


@contextmanager
def launched(*flags: str) -> Iterator[Browser]:
    folder = os.environ.get("CHROMIUM")
    program, libraries = shutil.which("chromium"), ""
    if program is None and folder is not None:
        root = Path(folder).resolve() / "usr" / "lib"
        program = str(root / "chromium" / "chromium")
        libraries = ":".join(str(path) for path in [*root.glob("*-linux-gnu"), *root.glob("*-linux-gnu/pulseaudio")])
    assert program is not None, "there is no chromium on the PATH"
    # a container has no user namespaces for Chromium's sandbox
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", *flags]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments, env={**os.environ, "LD_LIBRARY_PATH": libraries})
        yield browser
        browser.close()
