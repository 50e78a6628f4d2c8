// The ranks: one square for each, and a grid with arrow-key navigation.

import { h, write } from "./dom.js";
import { count } from "./words.js";

const COLUMNS = ["Rank", "State", "Node", "Pod", "Restarts", "Last line"];
const ORDER = ["Failed", "Pending", "Running", "Stopped", "Succeeded"];
const PAGE = 10;

/** Returns the view of the ranks: `element` and `show(training, fields)`. */
export function makeRanks() {
  const summary = h("p", { class: "muted small" });
  const map = h("div", { class: "map", "aria-hidden": "true" });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Show only" });
  const body = h("tbody");
  const grid = h("table", { class: "ranks", role: "grid", "aria-labelledby": "ranks", onkeydown: key, onfocusin: focused },
    h("thead", {}, h("tr", { role: "row" }, COLUMNS.map((name) => h("th", { scope: "col", role: "columnheader" }, name)))),
    body);
  const rows = new Map(); // by source; rows are reused to keep focus and selection
  let only = null, here = { source: null, column: 0 };

  function show(training, fields) {
    const ranks = training.ranks.map((row) => Object.fromEntries(row.map((value, index) => [fields[index], value])));
    const states = [...new Set(ranks.map((each) => each.state))].sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
    if (!states.includes(only)) only = null;
    write(summary, summaryText(training, ranks));
    map.classList.toggle("many", ranks.length > 300);
    map.replaceChildren(...ranks.map((each) => h("i", { "data-state": each.state, title: `${each.source}: ${each.state}` })));
    chips.replaceChildren(...states.map((state) => chip(state, ranks.filter((each) => each.state === state).length)));
    const sources = new Set(ranks.map((each) => each.source));
    for (const [source, row] of rows) if (!sources.has(source)) { row.remove(); rows.delete(source); }
    ranks.forEach((each, index) => {
      if (!rows.has(each.source)) rows.set(each.source, makeRow(each.source));
      const row = rows.get(each.source);
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
      fill(row, each, training);
    });
    if (!rows.has(here.source)) here = { source: ranks[0]?.source ?? null, column: 0 };
    filter();
  }

  function chip(state, many) {
    const focus = document.activeElement?.dataset?.chip === state;
    const button = h("button", {
      type: "button", class: "chip", "data-state": state, "data-chip": state, "aria-pressed": String(only === state),
      onclick() {
        only = only === state ? null : state;
        for (const each of chips.children) each.setAttribute("aria-pressed", String(each.dataset.chip === only));
        filter();
      },
    }, `${many.toLocaleString()} ${state.toLowerCase()}`);
    if (focus) queueMicrotask(() => button.focus());
    return button;
  }

  function filter() {
    for (const row of rows.values()) row.hidden = only !== null && row.dataset.state !== only;
    if (rows.get(here.source)?.hidden) here.source = visible()[0]?.dataset.source ?? null;
    rove();
  }

  const visible = () => [...body.children].filter((row) => !row.hidden);

  /** Makes one cell a stop of the Tab key: the one that had the focus last. */
  function rove() {
    for (const row of rows.values()) {
      [...row.children].forEach((cell, column) => {
        cell.tabIndex = row.dataset.source === here.source && column === here.column ? 0 : -1;
      });
    }
  }

  function focused(event) {
    const cell = event.target.closest("td, tbody th");
    if (!cell) return;
    here = { source: cell.parentElement.dataset.source, column: cell.cellIndex };
    rove();
  }

  function key(event) {
    const all = visible(), row = all.findIndex((each) => each.dataset.source === here.source);
    const last = all.length - 1, end = COLUMNS.length - 1;
    const to = {
      ArrowDown: [row + 1, here.column], ArrowUp: [row - 1, here.column],
      ArrowRight: [row, here.column + 1], ArrowLeft: [row, here.column - 1],
      PageDown: [row + PAGE, here.column], PageUp: [row - PAGE, here.column],
      Home: [event.ctrlKey ? 0 : row, 0], End: [event.ctrlKey ? last : row, end],
    }[event.key];
    if (!to || last < 0) return;
    event.preventDefault();
    const within = (value, most) => Math.max(0, Math.min(most, value));
    all[within(to[0], last)].children[within(to[1], end)].focus();
  }

  return {
    element: h("section", { class: "card", "aria-labelledby": "ranks" },
      h("div", { class: "head" }, h("h2", { id: "ranks" }, "Ranks"), summary), map, chips,
      h("div", { class: "scroll tall" }, grid)),
    show,
  };
}

function makeRow(source) {
  const cell = (name) => h("td", { role: "gridcell", class: name });
  return h("tr", { role: "row", "data-source": source },
    h("th", { role: "rowheader", scope: "row" }, source.replace(/^rank /, "")),
    h("td", { role: "gridcell" }, h("span", { class: "state" })),
    cell("mono"), cell("mono"), cell("number"), cell("mono last-line"));
}

function fill(row, rank, training) {
  row.dataset.state = rank.state;
  row.classList.toggle("first", training.failure?.rank != null && training.failure.rank === rank.rank);
  const [, state, node, pod, restarts, line] = row.children;
  state.firstChild.dataset.state = rank.state;
  write(state.firstChild, rank.ended ? `${rank.state}, ${rank.ended}` : rank.state);
  write(node, training.nodes[rank.node] ?? "");
  write(pod, rank.pod);
  write(restarts, rank.restarts ? String(rank.restarts) : "");
  write(line, rank.last_line);
}

function summaryText(training, ranks) {
  const nodes = training.nodes.length;
  const hidden = training.hidden ? `, ${count(training.hidden, "more row")} not shown` : "";
  const world = training.world_size ?? ranks.filter((each) => each.rank !== null).length;
  return `${count(world, "rank")}${nodes ? ` on ${count(nodes, "node")}` : ""}${hidden}`;
}
