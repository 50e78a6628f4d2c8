"""The page's charts have the ticks that charts of reports have."""

from __future__ import annotations

from importlib.resources import files
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from stepset.html.ticks import ticks

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.airflow, pytest.mark.local]


def test_the_script_computes_the_same_ticks(browser: Browser) -> None:
    script = (files("stepset_airflow.page") / "static" / "ticks.js").read_text()
    random = Random(8)
    numbers = [random.uniform(-9, 9) * 10.0 ** random.choice([0, 0, 1, 2, 6, -3, -12, 250, -290]) for _ in range(2000)]
    ranges = [sorted(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    ranges += [[0.1, 0.4], [0.0, 1.0], [-1.0, 1.0], [1.0, 60.0], [0.0, 5e-324], [1.0, 1.0 + 1e-9], [-2.5, 0.0]]
    page = browser.new_page()
    run = "async ([script, ranges]) => { const { ticks } = await import(script); return ranges.map(r => ticks(...r)); }"
    shown = page.evaluate(run, [f"data:text/javascript,{quote(script)}", ranges])
    page.close()
    assert shown == [ticks(low, high) for low, high in ranges]
