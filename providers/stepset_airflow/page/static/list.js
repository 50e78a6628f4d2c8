// Recent trainings, with links to their pages.

import { h } from "./dom.js";
import { clock, count, duration, isOver, phaseText, taskName } from "./words.js";

const COLUMNS = ["State", "Run", "Task", "Ranks", "Done", "Started", "Took"];

/** Returns the view of the list: `element` and `show`. */
export function makeList() {
  const rows = h("tbody");
  const empty = h("div", { class: "card empty", hidden: true },
    h("h2", {}, "No trainings yet"),
    h("p", {}, "A task made by DistributedTrainOperator or @task.distributed_train appears here as soon as it runs."));
  const table = h("table", { class: "list" },
    h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))), rows);
  const card = h("section", { class: "card", "aria-labelledby": "recent" },
    h("h1", { id: "recent" }, "Trainings"), h("div", { class: "scroll" }, table));
  return {
    element: h("div", { class: "stack" }, card, empty),
    show({ runs }, ahead) {
      card.hidden = runs.length === 0;
      empty.hidden = runs.length > 0;
      const focused = document.activeElement?.getAttribute("href");
      rows.replaceChildren(...runs.map((run) => row(run, ahead)));
      if (focused) [...rows.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
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
  return h("tr", {},
    h("td", {}, h("span", { class: "pill", "data-state": training.phase }, phaseText(training)),
      training.failure ? h("div", { class: "why" }, training.failure) : null),
    h("td", {}, h("a", { href: `?${where}`, class: "mono" }, training.run)),
    h("td", {}, taskName(task), h("div", { class: "muted small" }, task.run_id)),
    h("td", {}, training.world_size ? count(training.world_size, "rank") : ""),
    h("td", { class: "number" }, done == null ? "" : `${Math.round(100 * done)} %`),
    h("td", { class: "number" }, clock(training.created)),
    h("td", { class: "number" }, training.created ? duration(seconds) : ""));
}

const linkTo = (task) => new URLSearchParams({
  dag_id: task.dag_id, run_id: task.run_id, task_id: task.task_id, map_index: task.map_index,
  ...(task.region_id && { region_id: task.region_id, region_index: task.region_index }),
});

/** Returns the row of a task whose document another program has written or changed. */
function unreadable(task) {
  return h("tr", {},
    h("td", {}, h("span", { class: "pill" }, "unreadable")),
    h("td", {}, h("a", { href: `?${linkTo(task)}`, class: "mono" }, "–")),
    h("td", {}, taskName(task), h("div", { class: "muted small" }, task.run_id)),
    COLUMNS.slice(3).map(() => h("td", {})));
}
