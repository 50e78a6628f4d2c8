// The ranks of a run. There is a square for each rank, and a grid with a row for each rank.

import { h, write } from "./dom.js";
import { makeGrid } from "./grid.js";
import { count, logOf, mayReadLog } from "./words.js";

const COLUMNS = ["Rank", "State", "Node", "Pod", "Restarts", "Last line"];
const ORDER = ["Failed", "Pending", "Running", "Stopped", "Succeeded"];

/** Returns the view of the ranks. It has the members `element` and `show(training, fields, task)`. */
export function makeRanks() {
  const summary = h("p", { class: "muted small" });
  const map = h("div", { class: "map", "aria-hidden": "true" });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Show only" });
  const body = h("tbody");
  const table = h("table", { class: "ranks", "aria-labelledby": "ranks" },
    h("thead", {}, h("tr", { role: "row" }, COLUMNS.map((name) => h("th", { scope: "col", role: "columnheader" }, name)))),
    body);
  const rows = new Map(); // by source; rows are reused to keep focus and selection
  const grid = makeGrid(table);
  let only = null;

  function show(training, fields, task) {
    const ranks = training.ranks.map((row) => Object.fromEntries(row.map((value, index) => [fields[index], value])));
    const states = [...new Set(ranks.map((each) => each.state))].sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
    if (!states.includes(only)) only = null;
    write(summary, summaryText(training, ranks));
    map.classList.toggle("many", ranks.length > 300);
    map.replaceChildren(...ranks.map((each) => h("i", { "data-state": each.state, title: `${each.source}: ${each.state}` })));
    chips.replaceChildren(...states.map((state) => chip(state, ranks.filter((each) => each.state === state).length)));
    grid.update(() => {
      const sources = new Set(ranks.map((each) => each.source));
      for (const [source, row] of rows) if (!sources.has(source)) { row.remove(); rows.delete(source); }
      ranks.forEach((each, index) => {
        if (!rows.has(each.source)) rows.set(each.source, makeRow(each.source));
        const row = rows.get(each.source);
        if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
        fill(row, each, training, task);
      });
      filter();
    });
  }

  function chip(state, many) {
    const focus = document.activeElement?.dataset?.chip === state;
    const button = h("button", {
      type: "button", class: "chip", "data-state": state, "data-chip": state, "aria-pressed": String(only === state),
      onclick() {
        only = only === state ? null : state;
        for (const each of chips.children) each.setAttribute("aria-pressed", String(each.dataset.chip === only));
        grid.update(filter);
      },
    }, `${many.toLocaleString()} ${state.toLowerCase()}`);
    if (focus) queueMicrotask(() => button.focus());
    return button;
  }

  function filter() {
    for (const row of rows.values()) row.hidden = only !== null && row.dataset.state !== only;
  }

  return {
    element: h("section", { class: "card", "aria-labelledby": "ranks" },
      h("div", { class: "head" }, h("h2", { id: "ranks" }, "Ranks"), summary), map, chips,
      h("div", { class: "scroll tall" }, table)),
    show,
  };
}

function makeRow(source) {
  const cell = (name) => h("td", { role: "gridcell", class: name });
  return h("tr", { role: "row", "data-key": source },
    h("th", { role: "rowheader", scope: "row" }),
    h("td", { role: "gridcell" }, h("span", { class: "state" })),
    cell("mono"), cell("mono"), cell("number"), cell("mono last-line"));
}

function fill(row, rank, training, task) {
  row.dataset.state = rank.state;
  row.classList.toggle("first", training.failure?.rank != null && training.failure.rank === rank.rank);
  const [head, state, node, pod, restarts, line] = row.children;
  const href = mayReadLog(training) ? `?${logOf(task, rank.source)}` : null;
  if (!head.hasChildNodes() || (head.querySelector("a")?.getAttribute("href") ?? null) !== href) {
    const name = rank.source.replace(/^rank /, "");
    head.replaceChildren(href ? h("a", { href, title: `Lines of ${rank.source} in the log` }, name) : name);
  }
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
