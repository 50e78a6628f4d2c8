"""The HTML of a status in a real browser, in the themes of notebooks: contrasts, colours and widths.

`STEPSET_SCREENSHOTS=DIR` saves pictures.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stepset import Failure, FailureKind, Phase, Progress, ProgressPoint, RankStatus, RunStatus
from tests.colours import poor_contrasts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.local

START = 1_795_000_000.0
RANKS = tuple(
    RankStatus(f"rank {n}", n, f"node-{n}", "host", "Succeeded", exit_code=0, last_line=f"rank {n}: weight 2.97")
    for n in range(4)
)
POINTS = tuple(
    ProgressPoint(START + n, Progress(n, n / 40, {"loss": 9 * math.exp(-n / 8), "accuracy": 1 - math.exp(-n / 8)}))
    for n in range(1, 41)
)
SUCCEEDED = RunStatus(
    "digits-1",
    "digits",
    "local",
    Phase.SUCCEEDED,
    ranks=RANKS,
    world_size=4,
    created=START,
    finished=START + 41.5,
    progress=POINTS[-1].progress,
    points=POINTS,
    notes=("4 ranks share 2 cores",),
    program="train",
    result={"weight": 2.97},
)
LINES = tuple(f"step {n}: loss {9 / n:.3f}, {'a long line ' * 20}" for n in range(1, 12))
FAILED = SUCCEEDED.with_(
    phase=Phase.FAILED,
    result=None,
    ranks=(
        *(
            RankStatus(f"rank {n}", n, f"node-{n}", "host", "Stopped", signal=15, last_line="step 11")
            for n in (0, 2, 3)
        ),
        RankStatus("rank 1", 1, "node-1", "host", "Failed", exit_code=1, last_line=LINES[-1]),
    ),
    failure=Failure(
        FailureKind.USER_ERROR,
        "ValueError: batch size -3",
        "fix the training code",
        rank=1,
        pod="node-1",
        exit_code=1,
        error="ValueError: batch size -3",
        tail=LINES,
        aftermath=("rank 0", "rank 2", "rank 3"),
    ),
)
STATUSES = {"succeeded": SUCCEEDED, "failed": FAILED}

LIGHT, DARK = (255, 255, 255), (20, 23, 30)
THEMES = {
    "browser-light": ("light", "", LIGHT),
    "browser-dark": ("dark", "", DARK),
    "jupyterlab-light": ("dark", 'data-jp-theme-light="true"', LIGHT),
    "jupyterlab-dark": ("light", 'data-jp-theme-light="false"', DARK),
    "vscode-light": ("dark", 'class="vscode-light"', LIGHT),
    "vscode-dark": ("light", 'class="vscode-dark"', DARK),
}
"""The colours that the browser prefers, the attributes of the notebook's body, and the expected background."""

FOREIGN = """
  :not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon :is(td, th, tr) { text-align: right; }
  .jp-ThemedContainer .jp-RenderedHTMLCommon pre { background: red; color: red; padding: 9px; border: 9px solid; }
  .jp-RenderedHTMLCommon tbody tr:nth-child(even), .jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: red; }
  .jp-RenderedHTMLCommon :is(td, th, tr, p) { padding: 9px; line-height: 3; vertical-align: middle; }
  .jp-RenderedHTMLCommon p { margin: 9px; text-align: right; }
  .jp-RenderedHTMLCommon :is(td, th, tr, table) { border: 9px solid; color: red; white-space: normal; }
  .jp-RenderedHTMLCommon table { table-layout: fixed; margin: auto; font-size: 30px; }
  .jp-RenderedHTMLCommon svg { max-width: 30px; }
"""
"""Rules as specific as those of JupyterLab 4 (packages/rendermime/style/base.css) for the same elements."""
STYLES = """() => [...document.querySelectorAll(".stepset-run *:not(style)")].map(each => {
  const style = getComputedStyle(each), box = each.getBoundingClientRect();
  const names = ["color", "backgroundColor", "textAlign", "padding", "margin", "font", "border", "tableLayout"];
  return [each.tagName, ...names.map(name => style[name]), box.width, box.height].join(", ");
})"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 900, "height": 900})
    yield context.new_page()
    context.close()


def _show(page: Page, status: RunStatus, theme: str, rules: str = "") -> None:
    prefers, attributes, (red, green, blue) = THEMES[theme]
    page.emulate_media(color_scheme="dark" if prefers == "dark" else "light")
    style = f"margin: 12px; background: rgb({red} {green} {blue})"
    cell = f'<div class="jp-ThemedContainer"><div class="jp-RenderedHTMLCommon">{status._repr_html_()}</div></div>'
    page.set_content(f'<!doctype html><style>{rules}</style><body {attributes} style="{style}">{cell}</body>')


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", STATUSES)
def test_texts_have_the_contrast_and_the_background_of_the_theme(page: Page, name: str, theme: str) -> None:
    _show(page, STATUSES[name], theme)
    assert poor_contrasts(page, 4.5) == []
    background = page.locator(".stepset-run").evaluate("each => getComputedStyle(each).backgroundColor")
    assert background == "rgb({}, {}, {})".format(*THEMES[theme][2])
    if folder := os.environ.get("STEPSET_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"notebook-{name}-{theme}.png", full_page=True)


@pytest.mark.parametrize("width", [360, 700, 1400])
@pytest.mark.parametrize("name", STATUSES)
def test_the_element_is_not_wider_than_the_cell(page: Page, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    _show(page, STATUSES[name], "browser-light")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("STEPSET_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"notebook-{name}-{width}.png", full_page=True)


@pytest.mark.parametrize("name", STATUSES)
def test_rules_of_the_notebook_do_not_change_the_element(page: Page, name: str) -> None:
    _show(page, STATUSES[name], "jupyterlab-light")
    alone = page.evaluate(STYLES)
    _show(page, STATUSES[name], "jupyterlab-light", FOREIGN)
    assert page.evaluate(STYLES) == alone


def test_the_diagnosis_fits_a_narrow_cell(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 900})
    _show(page, FAILED, "browser-light")
    hidden = page.locator(".stepset-run .scroll").first.evaluate("each => each.scrollWidth - each.clientWidth")
    assert hidden == 0
