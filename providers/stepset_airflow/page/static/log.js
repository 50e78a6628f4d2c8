// The lines of one rank in the task's log. Airflow's API returns the log.

import { h, toList, write } from "./dom.js";
import { clock, count, isOver, linkTo, taskName } from "./words.js";

const KEPT = 2000; // lines: the last ones
const MOST = 256 * 2 ** 20; // bytes of a log that are read
const LONGEST = 2 ** 20; // characters of a line that are read
const EVERY = 5000; // milliseconds between two reads while the run lasts
const COLOURS = /\x1b\[[\d;:]*m/g;

const REFUSED = {
  403: "You may not read the task's log.",
  404: "Airflow has no log of this try.",
};

/**
 * Returns the view of a rank's lines. It has the members `element` and `show`.
 *
 * @param source the prefix of the lines, such as "rank 3".
 * @param region the part of a query that contains the region of the task instance.
 */
export function makeLog(source, region) {
  const back = h("a", { class: "small" });
  const title = h("h1"), about = h("p", { class: "muted", role: "status" });
  const problem = h("p", { class: "problem", hidden: true }), advice = h("p", { hidden: true });
  const lines = h("ol", { class: "log mono", tabindex: "0", role: "region", "aria-label": `Lines of ${source}`, hidden: true });
  let data = null, reading = false, again = false, shown = "";

  function show(next) {
    data = next;
    const { training, task } = data;
    write(title, `Lines of ${source} in the log`);
    document.title = `${source}: ${training?.run ?? task.task_id}`;
    back.setAttribute("href", `?${linkTo(task)}`);
    write(back, training ? `Run ${training.run}` : "Training");
    again = true;
    read();
    return !training || !isOver(training.phase) || ["running", "deferred"].includes(task.state);
  }

  /** Reads the log. If the run has changed in the meantime, reads the log again after a delay. */
  async function read() {
    if (reading || !again) return;
    reading = true;
    again = false;
    try {
      fill(await linesOf(await request(), `[${source}] `));
    } catch (error) {
      fail(error instanceof Refused ? error.message : "Airflow does not answer. The request is repeated.");
      again ||= !(error instanceof Refused);
    }
    setTimeout(() => { reading = false; read(); }, EVERY);
  }

  async function request() {
    const { task, training } = data;
    const [dag, run, name] = [task.dag_id, task.run_id, task.task_id].map(encodeURIComponent);
    const tried = training?.try_number ?? task.try_number;
    const path = `../api/v2/dags/${dag}/dagRuns/${run}/taskInstances/${name}/logs/${tried}`;
    const answer = await fetch(`${path}?map_index=${task.map_index}&full_content=true${region}`, {
      credentials: "same-origin", headers: { Accept: "application/x-ndjson" },
    });
    if (!answer.ok) throw new Refused(REFUSED[answer.status] ?? `Airflow answers with an error (${answer.status}).`);
    return answer.body;
  }

  function fail(text) {
    problem.hidden = text === null;
    if (text !== null) write(problem, text);
  }

  function fill({ found, total, complete }) {
    fail(null);
    const { task, training } = data;
    const where = `${taskName(task)}  ·  try ${training?.try_number ?? task.try_number}`;
    const part = total > found.length ? `the last ${found.length.toLocaleString()} of ${count(total, "line")}` : count(total, "line");
    write(about, `${where}  ·  ${part}${complete ? "" : "; the log is longer than 256 MiB, and its end was not read"}`);
    lines.hidden = total === 0;
    advice.hidden = total > 0;
    write(advice, adviceFor(training));
    const text = JSON.stringify(found);
    if (text === shown) return;
    const atEnd = shown === "" || lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
    shown = text;
    lines.replaceChildren(...found.map((line) => h("li", {},
      h("span", { class: "muted" }, line.at ? `${clock(line.at)} ` : ""), line.text)));
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  }

  function adviceFor(training) {
    const rank = /^rank (\d+)$/.exec(source)?.[1];
    const command = `stepset logs ${training?.run ?? "RUN"}${rank === undefined ? "" : ` --ranks ${rank}`}`
      + (training?.backend === "kubernetes" ? " --backend kubernetes" : "");
    return `The task's log has no lines of ${source}. The operator's parameter log_ranks selects the ranks whose lines it`
      + ` contains. The run's own log: ${command}`;
  }

  return {
    element: h("div", { class: "stack" },
      h("header", { class: "card" }, h("nav", { class: "path" }, toList(), back), title, about, problem, advice), lines),
    show,
  };
}

class Refused extends Error {}

/** Returns the last lines with a prefix, the number of all lines with the prefix, and whether the log was complete. */
async function linesOf(body, prefix) {
  const found = [], reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", size = 0, total = 0;
  const take = (json) => {
    const line = json.length > LONGEST ? null : parsed(json);
    if (typeof line?.event !== "string" || !line.event.startsWith(prefix)) return;
    total += 1;
    found.push({ at: Date.parse(line.timestamp) / 1000 || 0, text: line.event.slice(prefix.length).replace(COLOURS, "") });
    if (found.length > KEPT) found.shift();
  };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MOST) {
      await reader.cancel();
      return { found, total, complete: false };
    }
    const parts = (rest + value).split("\n");
    // A line that is too long is skipped, to limit the use of memory.
    rest = parts.pop().slice(0, LONGEST + 1);
    parts.forEach(take);
  }
  take(rest);
  return { found, total, complete: true };
}

function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return null;
  }
}
