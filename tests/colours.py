"""The contrast of a page's texts with their background, from the colours that a browser has computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# CSS may mix colours and use other colour spaces: painting a colour yields its RGB value. The contrast ratio is that of
# WCAG 2.2 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio).
_POOR = """
    least => {
      const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      const rgba = colour => {
        paint.clearRect(0, 0, 1, 1);
        paint.fillStyle = colour;
        paint.fillRect(0, 0, 1, 1);
        return [...paint.getImageData(0, 0, 1, 1).data];
      };
      const behind = element => {
        for (let each = element; each; each = each.parentElement) {
          const colour = rgba(getComputedStyle(each).backgroundColor);
          if (colour[3] === 255) return colour;
        }
        return [255, 255, 255, 255];
      };
      const light = ([r, g, b]) => [r, g, b].map(each => each / 255)
        .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
        .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
      const contrast = (one, other) => {
        const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
        return (bright + 0.05) / (dark + 0.05);
      };
      const poor = [];
      for (const element of document.querySelectorAll("body *")) {
        const texts = [...element.childNodes].filter(each => each.nodeType === 3);
        const text = texts.map(each => each.data).join("").trim();
        if (!text || !element.checkVisibility()) continue;
        const style = getComputedStyle(element);
        const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
        const found = contrast(ink, behind(element));
        if (found < least) poor.push(`${text} (${element.className || element.tagName}): ${found.toFixed(2)}`);
      }
      return poor;
    }
"""


def poor_contrasts(page: Page, least: float) -> list[str]:
    """The visible texts whose contrast ratio is below `least`, each with its ratio."""
    return list(page.evaluate(_POOR, least))
