// The page "Training": the training of the task instance in the URL, else recent trainings.

import { announce, h, write } from "./dom.js";
import { makeList } from "./list.js";
import { poll } from "./poll.js";
import { regionQuery } from "./region.js";
import { makeRun } from "./run.js";
import { followTheme } from "./theme.js";
import { followTimeZone } from "./timezone.js";

followTheme();
followTimeZone();

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

function follow(path, view) {
  page.append(view.element);
  poll(path, (data, ahead) => {
    page.removeAttribute("aria-busy");
    return view.show(data, ahead);
  }, fail);
}

if (task.every(Boolean)) {
  const [dag, run, name] = task.map(encodeURIComponent);
  follow(`api/dags/${dag}/dagRuns/${run}/taskInstances/${name}?map_index=${mapIndex}${regionQuery(query)}`, makeRun(announce));
} else {
  follow("api/runs", makeList());
}
