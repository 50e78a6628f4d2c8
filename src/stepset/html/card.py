"""Creates the HTML element that shows one run, a list of runs or log lines in a notebook. Contains only pure functions.

The element has no scripts and no external resources. The element has its own colours, which are dark or light. In
JupyterLab and VS Code, the theme of the page determines the colours. In other notebooks, the preference of the browser
determines the colours.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepset.html.escaped import escaped

_CELL = 160
"""The maximum number of characters of a table cell. Longer texts are truncated."""
_LIGHT = (
    "color-scheme:light;--ink:#1f2430;--quiet:#5b6475;--line:#d9dde5;--back:#ffffff;--card:#f6f7fa;--mark:#5b3fd6;"
    "--good:#17784b;--bad:#b3261e"
)
_DARK = (
    "color-scheme:dark;--ink:#e8eaf0;--quiet:#9aa3b5;--line:#363c4a;--back:#14171e;--card:#1c212b;--mark:#a996ff;"
    "--good:#5fd39a;--bad:#ff8a80"
)
_ROOT = ".stepset-run" * 3
"""Selects the element with a higher specificity than the notebooks' rules for tables and preformatted text."""
_STYLE = f"""
.stepset-run {{ {_LIGHT}; }}
@media (prefers-color-scheme: dark) {{ .stepset-run {{ {_DARK}; }} }}
[data-jp-theme-light="true"] .stepset-run, .vscode-light .stepset-run {{ {_LIGHT}; }}
[data-jp-theme-light="false"] .stepset-run, .vscode-dark .stepset-run {{ {_DARK}; }}
{_ROOT} {{ color: var(--ink); background: var(--back); border: 1px solid var(--line); border-radius: 6px;
  padding: .7rem 1rem; max-width: 60rem; font: 13px/1.5 system-ui, sans-serif; }}
{_ROOT} p {{ margin: .2rem 0; padding: 0; color: inherit; text-align: left; line-height: inherit; }}
{_ROOT} .quiet {{ color: var(--quiet); }}
{_ROOT} .good {{ color: var(--good); }} {_ROOT} .bad {{ color: var(--bad); }}
{_ROOT} .scroll {{ overflow-x: auto; margin: .6rem 0 0; }}
{_ROOT} table {{ border: 0; border-collapse: collapse; width: 100%; margin: 0; color: inherit; background: none;
  font: inherit; font-variant-numeric: tabular-nums; table-layout: auto; }}
{_ROOT} tr, {_ROOT} tr:nth-child(n), {_ROOT} tr:hover {{ background: none; color: inherit; text-align: left;
  line-height: inherit; padding: 0; border: 0; white-space: inherit; vertical-align: inherit; }}
{_ROOT} th, {_ROOT} td {{ text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top;
  border: 0; border-bottom: 1px solid var(--line); white-space: nowrap; color: inherit; max-width: none;
  line-height: inherit; }}
{_ROOT} th {{ color: var(--quiet); font-weight: 600; }}
{_ROOT} td.text {{ white-space: normal; overflow-wrap: anywhere; }}
{_ROOT} td.text span {{ white-space: nowrap; }}
{_ROOT} .ranks td.text {{ min-width: 14rem; }}
{_ROOT} td.bad {{ color: var(--bad); }} {_ROOT} td.good {{ color: var(--good); }}
{_ROOT} pre {{ margin: 0; padding: 0; border: 0; overflow-x: auto; color: inherit; background: none;
  font: 12px/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }}
{_ROOT} svg {{ width: 100%; min-width: 28rem; max-width: 44rem; height: auto; display: block; }}
{_ROOT} .curve {{ fill: none; stroke: var(--mark); stroke-width: 2; }} {_ROOT} .dot {{ fill: var(--mark); }}
{_ROOT} .grid {{ stroke: var(--line); }} {_ROOT} .tick {{ fill: var(--quiet); font-size: 12px; }}
"""
STATE_CLASSES = {"Failed": "bad", "Lost": "bad", "Succeeded": "good"}
"""The CSS class of the colour for the phase of a run or the state of a rank."""


def card(parts: Iterable[str]) -> str:
    """Returns the element that contains the parts. The parts are HTML."""
    return f'<div class="stepset-run"><style>{_STYLE}</style>{"".join(parts)}</div>'


def cell(text: str) -> str:
    """Returns a text for a table cell or a heading. The text is escaped, made printable and truncated."""
    return escaped(cut(text, _CELL))


def cut(text: str, limit: int) -> str:
    """Returns the first `limit` characters of a text. If the text is longer, ` ...` follows these characters."""
    return text if len(text) <= limit else f"{text[:limit]} ..."
