// The metrics of a run. Each metric has a small chart. All charts share one cursor.

import { isDrawn, makeAxes } from "./axes.js";
import { h, s, write } from "./dom.js";
import { number } from "./words.js";

const HEIGHT = 132;

/** Returns the view of the charts. It has the members `element` and `show(curve)`. */
export function makeCurve() {
  const charts = h("div", { class: "charts" });
  const cursor = h("p", { class: "muted small cursor" });
  // The Tab key moves the focus to the cursor. The arrow keys move the cursor from point to point.
  const stage = h("div", {
    class: "stage", tabindex: "0", role: "slider", "aria-label": "Point of the curves", onkeydown: key, onblur: leave,
  }, charts);
  const section = h("section", { class: "card", "aria-labelledby": "metrics", hidden: true },
    h("div", { class: "head" }, h("h2", { id: "metrics" }, "Metrics"), cursor), stage);
  let curve = null, drawn = [], at = null;
  new ResizeObserver(() => curve && draw()).observe(charts);

  function show(next) {
    section.hidden = !next || next.points.length === 0;
    if (section.hidden) return;
    const changed = JSON.stringify(next) !== JSON.stringify(curve);
    curve = next;
    if (changed) draw();
  }

  function draw() {
    if (charts.children.length !== curve.names.length) {
      charts.replaceChildren(...curve.names.map(() => h("figure")));
    }
    drawn = curve.names.map((name, index) => chart(charts.children[index], curve, name, index + 1, point));
    point(at === null ? null : Math.min(at, curve.points.length - 1));
  }

  function point(index) {
    at = index;
    const shown = index ?? curve.points.length - 1;
    const values = curve.names.map((name, place) => `${name} ${number(curve.points[shown][place + 1])}`).join(", ");
    const where = `${curve.x} ${number(curve.points[shown][0])}`;
    drawn.forEach((each) => each.point(index));
    write(cursor, index === null ? `to ${where}` : `${where}: ${values}`);
    const about = { valuemin: 0, valuemax: curve.points.length - 1, valuenow: shown, valuetext: `${where}: ${values}` };
    for (const [name, value] of Object.entries(about)) stage.setAttribute(`aria-${name}`, value);
  }

  function key(event) {
    const last = curve.points.length - 1, now = at ?? last;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, PageUp: now + 10, PageDown: now - 10 };
    if (event.key === "Escape") point(null);
    else if (event.key in to) point(Math.max(0, Math.min(last, to[event.key])));
    else return;
    event.preventDefault();
  }

  function leave() {
    if (curve) point(null);
  }

  stage.addEventListener("pointerleave", leave);
  return { element: section, show };
}

/** Draws one metric into a figure. Returns an object with the function `point`, which moves the cursor. */
function chart(figure, curve, name, place, onpoint) {
  const points = curve.points.map((row, index) => ({ index, x: row[0], y: row[place] }))
    .filter((each) => isDrawn(each.x) && isDrawn(each.y));
  const width = Math.max(220, figure.clientWidth);
  const { across, up, top, floor, grid } = makeAxes([width, HEIGHT], curve.points.map((row) => row[0]),
    points.map((each) => each.y));
  const dot = s("circle", { r: 3.5, class: "dot" });
  const hair = s("line", { y1: top, y2: floor, class: "hair", visibility: "hidden" });
  const value = h("output", {}, "");
  const lines = gaps(points).map((part) => part.map(({ x, y }) => `${across(x).toFixed(1)},${up(y).toFixed(1)}`));
  figure.replaceChildren(
    h("figcaption", {}, h("span", {}, name), value),
    s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, "aria-hidden": "true", onpointermove: move },
      grid,
      lines.map((part) => s("path", {
        class: "area", d: `M${part[0].split(",")[0]},${floor}L${part.join("L")}L${part.at(-1).split(",")[0]},${floor}Z`,
      })),
      lines.map((part) => s("polyline", { class: "line", points: part.join(" ") })), hair, dot));

  function move(event) {
    const box = event.currentTarget.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const near = curve.points.reduce((best, row, index) =>
      Math.abs(across(row[0]) - x) < Math.abs(across(curve.points[best][0]) - x) ? index : best, 0);
    onpoint(near);
  }

  return {
    point(index) {
      const shown = points.findLast((each) => each.index <= (index ?? Infinity)) ?? points[0];
      hair.setAttribute("visibility", index === null ? "hidden" : "visible");
      if (!shown) return;
      for (const name of ["x1", "x2"]) hair.setAttribute(name, across(curve.points[index ?? 0][0]));
      dot.setAttribute("cx", across(shown.x));
      dot.setAttribute("cy", up(shown.y));
      write(value, number(shown.y));
    },
  };
}

/** Splits the points into sequences without missing values. The line has a gap between two sequences. */
function gaps(points) {
  const parts = [];
  for (const each of points) {
    if (parts.length && parts.at(-1).at(-1).index === each.index - 1) parts.at(-1).push(each);
    else parts.push([each]);
  }
  return parts;
}
