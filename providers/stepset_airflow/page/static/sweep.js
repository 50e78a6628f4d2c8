// Compares the runs of a mapped task. There is a curve for each run, and a table with metrics and parameters.

import { isDrawn, makeAxes } from "./axes.js";
import { h, s, toList, write } from "./dom.js";
import { makeGrid } from "./grid.js";
import { count, duration, isOver, linkTo, number, phaseText } from "./words.js";

const HEIGHT = 280, COLOURS = 8, DASHES = 3;
const BETTER_LOW = /loss|error|perplexity|(^|[^a-z])(ppl|mse|mae|rmse|wer|cer)([^a-z]|$)/i;

/**
 * Returns the view of a sweep. It has the members `element`, `show` and `wanted`. `wanted` is the query for the data.
 *
 * @param query the query of the page's URL.
 * @param changed is called when the user has chosen another metric.
 */
export function makeSweep(query, changed) {
  const title = h("h1", { class: "mono" }), about = h("p", { class: "muted", role: "status" });
  const metric = h("select", { onchange: choose });
  const caption = h("h2", { id: "curves" }), chart = h("div", { class: "overlay" });
  const head = h("tr"), rows = h("tbody");
  const table = h("table", { class: "list sweep", "aria-label": "Runs" }, h("thead", {}, head), rows);
  const element = h("div", { class: "stack" },
    h("header", { class: "card" }, toList(),
      h("div", { class: "head" }, title, h("label", { class: "choice" }, h("span", { class: "muted small" }, "Metric "), metric)),
      about),
    h("section", { class: "card", "aria-labelledby": "curves" }, caption, chart),
    h("section", { class: "card", "aria-label": "Runs" }, h("div", { class: "scroll top" }, table)));
  const grid = makeGrid(table);
  let wished = query.get("metric") ?? "", data = null, sorted = null, here = null;
  new ResizeObserver(() => data && draw()).observe(chart);

  function choose() {
    wished = metric.value;
    sorted = null;
    const address = new URLSearchParams(location.search);
    address.set("metric", wished);
    history.replaceState(null, "", `?${address}`);
    changed();
  }

  function show(next, ahead) {
    data = next;
    const { task } = data.runs[0];
    write(title, `${task.dag_id} · ${task.task_id}`);
    document.title = `Sweep: ${task.task_id}`;
    const left = data.total - data.runs.length;
    write(about, `${task.run_id}  ·  ${count(data.total, "run")}${left ? `, of which the first ${data.runs.length} are shown` : ""}`);
    metric.parentElement.hidden = data.metrics.length === 0;
    if (metric.textContent !== data.metrics.join("")) {
      metric.replaceChildren(...data.metrics.map((name) => h("option", { value: name }, name)));
    }
    metric.value = data.metric;
    data.runs.forEach((run, place) => Object.assign(run, { place, ahead }));
    fill();
    draw();
    return data.runs.some(({ training, task: { state } }) => !training || !isOver(training.phase) || state === "running");
  }

  /** The columns of the table. A column has a name, the content of a run's cell, and the value for sorting. */
  function columns() {
    const of = (name) => (run) => run.training?.values[name] ?? null;
    const low = (name) => (BETTER_LOW.test(name) ? 1 : -1);
    return [
      { name: "Run", text: ({ task }) => `[${task.map_index}]`, value: (run) => run.place, first: 1 },
      { name: "State", text: () => "", value: ({ training }) => training?.phase ?? null, first: 1 },
      ...data.parameters.map((name) => ({
        name, text: ({ training }) => training?.parameters[name] ?? "–",
        value: ({ training }) => comparable(training?.parameters[name]), first: 1, kind: "parameter",
      })),
      ...data.metrics.map((name) => ({
        name, text: (run) => number(of(name)(run)), value: of(name), first: low(name), kind: "metric",
      })),
      { name: "Took", text: took, value: seconds, first: 1 },
    ];
  }

  function order(every) {
    const by = every.find((column) => column.name === sorted?.name && column.kind === sorted.kind)
      ?? every.find((column) => column.kind === "metric" && column.name === data.metric) ?? every[0];
    const direction = sorted?.direction ?? by.first;
    return { by, direction, runs: [...data.runs].sort((a, b) => compare(by.value(a), by.value(b), direction)) };
  }

  function fill() {
    const every = columns(), { by, direction, runs } = order(every);
    const active = document.activeElement, focused = head.contains(active) ? active.dataset.focus : null;
    head.replaceChildren(...every.map((column) => h("th", {
      scope: "col", "aria-sort": column === by ? (direction > 0 ? "ascending" : "descending") : false,
    }, h("button", {
      type: "button", class: "sort", "data-focus": `sort ${column.kind} ${column.name}`,
      onclick() {
        sorted = { name: column.name, kind: column.kind, direction: column === by ? -direction : column.first };
        fill();
      },
    }, column.name))));
    grid.update(() => rows.replaceChildren(...runs.map((run) => row(run, every))));
    if (focused) [...head.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === focused)?.focus();
  }

  function row(run, every) {
    const point = (place) => () => highlight(place);
    const [name, , ...rest] = every;
    return h("tr", {
      "data-key": run.place,
      onpointerenter: point(run.place), onpointerleave: point(null), onfocusin: point(run.place), onfocusout: point(null),
    },
    h("th", { scope: "row" }, swatch(run.place),
      h("a", { href: `?${linkTo(run.task)}` }, name.text(run))),
    h("td", {}, run.training
      ? h("span", { class: "pill", "data-state": run.training.phase }, phaseText(run.training))
      : h("span", { class: "pill" }, run.task.state ?? "waiting")),
    rest.map((column) => h("td", { class: column.kind === "parameter" ? "mono" : "number" }, column.text(run))));
  }

  function draw() {
    const lines = data.runs.filter((run) => run.points.length > 0)
      .map((run) => ({ run, points: run.points.filter((point) => point.every(isDrawn)) }));
    const every = lines.flatMap(({ points }) => points);
    const width = Math.max(260, chart.clientWidth);
    const { across, up, grid } = makeAxes([width, HEIGHT], every.map(([x]) => x), every.map(([, y]) => y));
    const label = `${data.metric} of ${count(lines.length, "run")}; the table contains the last values`;
    write(caption, data.metric ? `${data.metric} over ${data.x === "step" ? "steps" : data.x}` : "Curves");
    if (every.length === 0) {
      chart.replaceChildren(h("p", { class: "muted none" }, "No run has reported a metric yet."));
      return;
    }
    chart.replaceChildren(
      s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": label }, grid,
        lines.map(({ run, points }) => s("g", { class: `series ${style(run.place)}`, "data-place": run.place },
          s("title", {}, `[${run.task.map_index}]`),
          s("polyline", { points: points.map(([x, y]) => `${across(x).toFixed(1)},${up(y).toFixed(1)}`).join(" ") }),
          points.length === 1 ? s("circle", { cx: across(points[0][0]), cy: up(points[0][1]), r: 3 }) : null))));
    highlight(here);
  }

  function highlight(place) {
    here = place;
    chart.classList.toggle("one", place !== null);
    for (const line of chart.querySelectorAll(".series")) {
      const marked = Number(line.dataset.place) === place;
      line.classList.toggle("here", marked);
      if (marked) line.parentElement.append(line); // above the others
    }
  }

  return { element, show, wanted: () => new URLSearchParams(wished ? { metric: wished } : {}) };
}

/** Returns the CSS classes of a run's line. Lines have different colours. From the ninth line on, lines are dashed. */
const style = (place) => `colour${place % COLOURS} dash${Math.floor(place / COLOURS) % DASHES}`;

const swatch = (place) => s("svg", { class: "swatch", viewBox: "0 0 22 8", width: 22, height: 8, "aria-hidden": "true" },
  s("g", { class: `series ${style(place)}` }, s("polyline", { points: "1,4 21,4" })));

/** Compares two values. Missing values are last, in ascending and in descending order. */
function compare(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  return direction * (a < b ? -1 : a > b ? 1 : 0);
}

/** Converts a parameter to a number if possible, so that 10 follows 9. Numbers come before other values. */
function comparable(text) {
  if (text === undefined) return null;
  const value = Number(text);
  return text.trim() !== "" && isFinite(value) ? `0${sortable(value)}` : `1${text}`;
}

/** Converts a number to a string. The strings of several numbers have the same order as the numbers. */
function sortable(value) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0);
  return String(value < 0 ? 2n ** 64n - 1n - bits : bits + 2n ** 63n).padStart(20, "0");
}

function seconds({ training, ahead }) {
  if (!training?.created) return null;
  const end = training.finished ?? (isOver(training.phase) ? training.updated : null);
  return end === null ? Math.floor(Date.now() / 1000 - ahead - training.created) : end - training.created;
}

const took = (run) => duration(seconds(run));
