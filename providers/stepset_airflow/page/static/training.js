// The page "Training". If the URL contains a task instance, the page shows its run. Otherwise it shows recent runs.

import { announce, h, write } from "./dom.js";
import { makeList } from "./list.js";
import { makeLog } from "./log.js";
import { poll } from "./poll.js";
import { regionQuery } from "./region.js";
import { makeRun } from "./run.js";
import { makeSweep } from "./sweep.js";
import { followTheme } from "./theme.js";
import { followTimeZone, timeZone } from "./timezone.js";

followTheme();
followTimeZone();

const LONGEST_SOURCE = 200; // characters
const LIST_EVERY = 5000; // milliseconds: the server reads many documents

const query = new URLSearchParams(location.search);
const page = document.getElementById("page");
const problem = h("p", { class: "problem card", role: "alert", hidden: true });
page.append(problem);

const task = ["dag_id", "run_id", "task_id"].map((name) => query.get(name));
const mapIndex = /^-?\d+$/.test(query.get("map_index") ?? "") ? query.get("map_index") : "-1";

function fail(text) {
  problem.hidden = text === null;
  if (text !== null) {
    write(problem, text);
    page.removeAttribute("aria-busy");
  }
}

function follow(path, view, every) {
  page.append(view.element, h("footer", { class: "muted small" }, `Time zone: ${timeZone() ?? "the browser's"}`));
  return poll(path, (data, ahead) => {
    page.removeAttribute("aria-busy");
    return view.show(data, ahead);
  }, fail, every);
}

if (task.every(Boolean)) {
  const [dag, run, name] = task.map(encodeURIComponent);
  const dagRun = `api/dags/${dag}/dagRuns/${run}`;
  if (query.get("view") === "sweep") {
    const sweep = makeSweep(query, () => request());
    const request = follow(() => `${dagRun}/tasks/${name}/sweep?${sweep.wanted()}`, sweep, LIST_EVERY);
  } else {
    const instance = `${dagRun}/taskInstances/${name}`, which = `map_index=${mapIndex}${regionQuery(query)}`;
    const source = (query.get("source") ?? "").slice(0, LONGEST_SOURCE);
    const isLog = query.get("view") === "log" && source !== "";
    const view = isLog ? makeLog(source, regionQuery(query)) : makeRun(announce, `${instance}/stacks?${which}`);
    follow(() => `${instance}?${which}`, view);
  }
} else {
  const list = makeList(query, () => request());
  const request = follow(() => `api/runs?${list.wanted()}`, list, LIST_EVERY);
}
