// The state, failure, phases, metrics and ranks of one run.

import { makeCurve } from "./curve.js";
import { h, toList, write } from "./dom.js";
import { makeEvents } from "./events.js";
import { makeRanks } from "./ranks.js";
import { makeStacks } from "./stacks.js";
import { makeTimeline } from "./timeline.js";
import { clock, duration, isOver, logOf, mayReadLog, number, percent, phaseText, sweepOf, taskName } from "./words.js";

const TASK_OVER = ["success", "failed", "skipped", "upstream_failed", "removed"];
const FACTS = ["Took", "Ranks", "Restarts", "Step", "Done"];

/**
 * Returns the view of the run. It has the members `element` and `show`.
 *
 * @param announce announces a text to screen readers.
 * @param stacksPath the path of the document with the stacks of the ranks.
 */
export function makeRun(announce, stacksPath) {
  const pill = h("span", { class: "pill big" });
  const title = h("h1", { class: "mono" });
  const about = h("p", { class: "muted" });
  const compare = h("a", { class: "small", hidden: true }, "Compare with the other runs of this task");
  const updated = h("p", { class: "updated muted small" });
  const facts = Object.fromEntries(FACTS.map((name) => [name, h("dd")]));
  const done = h("div", { class: "done", role: "progressbar", "aria-label": "Part that is done", hidden: true }, h("i"));
  const head = h("header", { class: "card" }, toList(),
    h("div", { class: "head" }, h("div", { class: "title" }, pill, title), updated), about, compare,
    h("dl", { class: "facts" }, FACTS.map((name) => h("div", {}, h("dt", {}, name), facts[name]))), done);
  const diagnosis = makeDiagnosis();
  const tries = h("ol", { class: "tries" });
  const triesCard = h("section", { class: "card", "aria-labelledby": "tries", hidden: true },
    h("h2", { id: "tries" }, "Earlier tries"), tries);
  const timeline = makeTimeline(), curve = makeCurve(), ranks = makeRanks(), events = makeEvents();
  const stacks = makeStacks(stacksPath, announce);
  const result = h("code");
  const resultCard = h("section", { class: "card", "aria-labelledby": "result", hidden: true },
    h("h2", { id: "result" }, "Result"), h("pre", {}, result));
  const empty = h("section", { class: "card empty", hidden: true });
  const body = [head, diagnosis.element, timeline.element, curve.element, ranks.element, stacks.element, resultCard, triesCard, events.element];
  let training = null, task = null, ahead = 0, phase = null;

  setInterval(() => training && tick(), 1000);

  function show(data, skew) {
    ({ training, task } = data);
    ahead = skew;
    for (const each of body.slice(0, 1).concat(timeline.element, ranks.element)) each.hidden = training === null;
    empty.hidden = training !== null;
    stacks.show(training, data.stacks);
    const taskOver = TASK_OVER.includes(task.state);
    if (training === null) {
      empty.replaceChildren(...(data.unreadable ? unreadable() : nothing(task)));
      return !taskOver;
    }
    const current = phaseText(training);
    if (phase !== null && phase !== current) announce(`Run ${training.run}: ${current}`);
    phase = current;
    document.title = `${training.run}: ${training.phase}`;
    pill.dataset.state = training.phase;
    write(pill, current);
    write(title, training.run);
    write(about, aboutText(training, task));
    compare.hidden = task.map_index < 0;
    compare.setAttribute("href", `?${sweepOf(task)}`);
    write(facts.Ranks, training.ranks_state?.replace(" ranks ", " ") || "–"); // the label says "Ranks"
    write(facts.Restarts, String(training.attempt - (training.timeline[0]?.attempt ?? 0)));
    const { step, progress } = training.progress ?? {};
    write(facts.Step, step == null ? "–" : number(step));
    write(facts.Done, progress == null ? "–" : `${percent(progress)} %`);
    done.hidden = progress == null;
    if (progress != null) {
      done.setAttribute("aria-valuenow", percent(progress));
      done.firstChild.style.width = `${Math.max(0, Math.min(100, 100 * progress))}%`;
    }
    done.dataset.state = training.phase;
    events.show(training, diagnosis.show(training, task));
    triesCard.hidden = data.tries.length === 0;
    tries.replaceChildren(...data.tries.toReversed().map(earlierTry));
    curve.show(training.curve);
    ranks.show(training, data.rank_fields, task);
    resultCard.hidden = training.result === null;
    write(result, training.result ?? "");
    tick();
    return !(isOver(training.phase) && taskOver);
  }

  /** Updates the parts of the view that depend on the current time. */
  function tick() {
    const now = Date.now() / 1000 - ahead, over = isOver(training.phase);
    const end = training.finished ?? (over ? training.updated : null);
    const seconds = end === null ? Math.floor(now - training.created) : end - training.created;
    write(facts.Took, training.created ? duration(seconds) : "–");
    timeline.show(training, Math.max(now, training.updated));
    updated.classList.toggle("live", !over && !TASK_OVER.includes(task.state));
    write(updated, over ? `over since ${clock(training.finished ?? training.updated)}`
      : `last change ${duration(Math.floor(Math.max(0, now - training.updated)))} ago`);
  }

  return { element: h("div", { class: "stack" }, empty, body), show };
}

function aboutText(training, task) {
  const where = training.backend === "local" ? "on the worker" : `namespace ${training.namespace}, ${training.target ?? "unknown target"}`;
  return [
    taskName(task), where, `try ${training.try_number} of ${task.tries}`,
    training.created ? `since ${clock(training.created)}` : "",
    training.withheld?.length ? `without ${training.withheld.join(" and ")}, which you may not read` : "",
  ].filter(Boolean).join("  ·  ");
}

/** Returns the element that describes how another try ended. */
function earlierTry(training) {
  const end = training.finished ?? training.updated;
  const at = training.progress?.step == null ? "" : ` at step ${number(training.progress.step)}`;
  return h("li", {},
    h("span", { class: "pill", "data-state": training.phase }, training.phase),
    h("div", {}, h("b", {}, `Try ${training.try_number}`),
      ` ${clock(training.created)}, after ${duration(end - training.created)}${at}`,
      training.failure ? h("div", { class: "muted" }, training.failure) : null));
}

/** Returns the view of the diagnosis. It shows a failure, a problem, or a note that no process follows the run. */
function makeDiagnosis() {
  const title = h("h2", { id: "diagnosis" });
  const rows = h("dl");
  const advice = h("p");
  const lines = h("a", { class: "small", hidden: true });
  const card = h("section", { class: "card diagnosis", "aria-labelledby": "diagnosis", hidden: true },
    title, advice, rows, lines);
  let shown = "";
  return {
    element: card,
    /** Returns the index of the event that the card replaces, or undefined if the card replaces no event. */
    show(training, task) {
      const { failure, trouble } = training;
      const left = !isOver(training.phase) && TASK_OVER.includes(task.state);
      card.hidden = !failure && !trouble && !left && training.followed !== false;
      card.classList.toggle("failed", Boolean(failure));
      rows.hidden = !failure && (left || !trouble?.rows);
      lines.hidden = failure?.rank == null || !mayReadLog(training);
      if (!lines.hidden) {
        write(lines, `All lines of rank ${failure.rank} in the log`);
        lines.setAttribute("href", `?${logOf(task, `rank ${failure.rank}`)}`);
      }
      advice.hidden = Boolean(failure);
      if (failure) {
        write(title, failure.headline);
        if (shown === JSON.stringify(failure.rows)) return undefined;
        shown = JSON.stringify(failure.rows);
        rows.replaceChildren(...failure.rows.filter((row) => !isInHeadline(row, failure.headline)).map(diagnosisRow));
        // The last lines are the most important ones.
        for (const printed of rows.querySelectorAll("pre")) printed.scrollTop = printed.scrollHeight;
      } else if (left) {
        write(title, `The task is over (${task.state}); the state shown here may be outdated`);
        write(advice, `To see the current state of the run: stepset status ${training.run}`);
      } else if (trouble) {
        const since = training.events?.[trouble.event]?.at;
        write(title, trouble.summary);
        if (trouble.rows && shown !== JSON.stringify(trouble.rows)) {
          shown = JSON.stringify(trouble.rows);
          rows.replaceChildren(...trouble.rows.map(diagnosisRow));
        }
        write(advice, [since ? `Since ${clock(since)}.` : "", trouble.advice].filter(Boolean).join(" "));
        advice.hidden = !advice.textContent;
        return trouble.event;
      } else {
        write(title, "No process follows this run");
        write(advice, `wait_for_completion is False. To see the state of the run: stepset status ${training.run}`);
      }
      return undefined;
    },
  };
}

/** Returns whether the headline already contains a row of the diagnosis. Such a row is not shown again. */
const isInHeadline = ([name, lines], headline) => name === "error" && lines.length === 1 && headline.includes(lines[0]);

/** Returns a row of the diagnosis. Lines of output can be scrolled with the mouse or the keyboard. */
function diagnosisRow([name, lines]) {
  const printed = name === "last lines" || name === "events";
  const text = lines.join("\n");
  return h("div", {}, h("dt", {}, name),
    h("dd", {}, printed ? h("pre", { tabindex: "0", role: "region", "aria-label": name }, text) : text));
}

function unreadable() {
  return [
    h("h2", {}, "Unreadable"),
    h("p", {}, "The XCom stepset_training of this task is not a document of stepset, or is too large."),
  ];
}

function nothing(task) {
  const waits = [null, "scheduled", "queued", "running", "deferred", "up_for_retry", "restarting"].includes(task.state);
  return [
    h("h2", {}, waits ? "Nothing to show yet" : "No training here"),
    h("p", {}, waits
      ? `Task ${task.task_id} is ${task.state ?? "not scheduled yet"}. If it trains, its run appears here when it is created.`
      : `Task ${task.task_id} has no training. Only tasks of DistributedTrainOperator have one.`),
  ];
}
