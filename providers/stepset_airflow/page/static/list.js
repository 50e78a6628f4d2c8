// The list of runs. Each entry has a link to the page of the run.

import { h } from "./dom.js";
import { makeFilters } from "./filters.js";
import { makeGrid } from "./grid.js";
import { clock, count, duration, isOver, linkTo, percent, phaseText, sweepOf, taskName } from "./words.js";

const KEYS = "In the table: arrows, Page Up, Page Down, Home and End move, Enter opens a run, / goes to the search. "
  + "In the search: the down arrow goes to the table.";
const COLUMNS = ["State", "Run", "Task", "Ranks", "Done", "Started", "Took"];

/**
 * Returns the view of the list. It has the members `element`, `show` and `wanted`. `wanted` is the query for the data.
 *
 * @param query the query of the page's URL. The query contains the filters.
 * @param changed is called when the user has changed the filters.
 */
export function makeList(query, changed) {
  const filters = makeFilters(query, changed, () => grid.focus());
  const rows = h("tbody");
  const empty = h("div", { class: "card empty", hidden: true },
    h("h2", {}, "No trainings yet"),
    h("p", {}, "A task made by DistributedTrainOperator or @task.distributed_train appears here as soon as it runs."));
  const none = h("div", { class: "none", hidden: true }, h("p", {}, "No training matches the filters."),
    h("button", { type: "button", onclick: filters.clear }, "Clear the filters"));
  const table = h("table", { class: "list", "aria-labelledby": "recent", "aria-describedby": "keys", onkeydown: search },
    h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))), rows);
  const grid = makeGrid(table);
  const scroll = h("div", { class: "scroll" }, table);
  const keys = h("p", { id: "keys", class: "muted small" }, KEYS);
  const card = h("section", { class: "card", "aria-labelledby": "recent" },
    h("div", { class: "head" }, h("h1", { id: "recent" }, "Trainings"), filters.pager), filters.element, scroll, none);

  function search(event) {
    if (event.key !== "/") return;
    event.preventDefault();
    filters.focus();
  }

  return {
    element: h("div", { class: "stack" }, card, keys, empty),
    wanted: filters.wanted,
    show(data, ahead) {
      const found = data.runs.length > 0;
      card.hidden = !found && !filters.active();
      empty.hidden = !card.hidden;
      scroll.hidden = keys.hidden = !found;
      none.hidden = found;
      filters.show(data);
      grid.update(() => rows.replaceChildren(...data.runs.map((run) => row(run, ahead))));
      return true;
    },
  };
}

function row({ task, training }, ahead) {
  if (training === null) return unreadable(task);
  const where = linkTo(task);
  const end = training.finished ?? (isOver(training.phase) ? training.updated : null);
  const seconds = end === null ? Math.floor(Date.now() / 1000 - ahead - training.created) : end - training.created;
  const done = training.progress?.progress;
  return h("tr", { "data-key": String(where) },
    h("td", {}, h("span", { class: "pill", "data-state": training.phase }, phaseText(training)),
      training.failure ? h("div", { class: "why" }, training.failure) : null),
    h("td", {}, h("a", { href: `?${where}`, class: "mono" }, training.run)),
    h("td", {}, taskName(task), task.map_index >= 0 ? [" ", h("a", { href: `?${sweepOf(task)}`, class: "small" }, "compare")] : null,
      h("div", { class: "muted small" }, task.run_id)),
    h("td", {}, training.world_size ? count(training.world_size, "rank") : ""),
    h("td", { class: "number" }, done == null ? "" : `${percent(done)} %`),
    h("td", { class: "number" }, clock(training.created)),
    h("td", { class: "number" }, training.created ? duration(seconds) : ""));
}

/** Returns the row of a task whose stored data is unreadable. Another program may have changed the data. */
function unreadable(task) {
  return h("tr", { "data-key": String(linkTo(task)) },
    h("td", {}, h("span", { class: "pill" }, "unreadable")),
    h("td", {}, h("a", { href: `?${linkTo(task)}`, class: "mono" }, "–")),
    h("td", {}, taskName(task), h("div", { class: "muted small" }, task.run_id)),
    COLUMNS.slice(3).map(() => h("td", {})));
}
