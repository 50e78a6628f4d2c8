"""A browser for the tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser.

    Playwright's event loop runs in this thread as long as the browser does, and asyncio allows no other, so the browser
    ends with the module that uses it.
    """
    pytest.importorskip("playwright", reason="the environments of the oldest and newest Python have no playwright")
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("STEPSET_REQUIRE_ALL"):
            pytest.fail("chromium is not installed; run `make system` as root")
        pytest.skip("chromium is not installed (`make system` as root installs it)")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()
