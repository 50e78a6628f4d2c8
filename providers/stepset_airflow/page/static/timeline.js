// The phases of a run, as a bar and as a list. In the bar, the width of a phase is proportional to the duration.

import { h } from "./dom.js";
import { clock, duration, isOver, phaseText } from "./words.js";

const LEAST = 0.6; // percent of the bar, so that the shortest phase is visible

/** Returns the view of the phases. It has the members `element` and `show(training, now)`. */
export function makeTimeline() {
  const bar = h("div", { class: "bar", "aria-hidden": "true" });
  const words = h("ol", { class: "phases" });
  let shown = "";
  return {
    element: h("section", { class: "card", "aria-labelledby": "phases" },
      h("h2", { id: "phases" }, "Phases"), bar, words),
    show(training, now) {
      const phases = lasting(training.timeline, training.finished ?? now);
      const total = Math.max(0.001, phases.reduce((sum, each) => sum + each.seconds, 0));
      const text = JSON.stringify(phases);
      if (text === shown) return;
      shown = text;
      bar.replaceChildren(...phases.filter((each) => !isOver(each.phase)).map((each) => h("span", {
        "data-state": each.phase,
        title: `${phaseText(each)}, ${duration(each.seconds)}`,
      })));
      // A script sets the widths, because the content security policy forbids styles in markup.
      [...bar.children].forEach((part, index) => {
        part.style.flexGrow = Math.max(LEAST, (100 * phases[index].seconds) / total);
      });
      words.replaceChildren(...phases.map((each) => h("li", { "data-state": each.phase },
        h("b", {}, phaseText(each)),
        h("span", { class: "muted" }, isOver(each.phase) ? clock(each.at) : `${duration(each.seconds)} from ${clock(each.at)}`),
        each.restart ? h("span", { class: "muted" }, `restart ${each.restart}`) : null)));
    },
  };
}

/** Returns the phases with their durations in seconds. */
function lasting(timeline, end) {
  return timeline.map((each, index) => {
    const next = index + 1 < timeline.length ? timeline[index + 1].at : end;
    // After a retry of the task, the first attempt is not 0. Restarts are counted from this first attempt.
    const restart = each.attempt - timeline[0].attempt;
    // The duration of the current phase is updated every second, so whole seconds are enough.
    const seconds = index + 1 < timeline.length ? Math.round(10 * (next - each.at)) / 10 : Math.floor(next - each.at);
    return { ...each, restart, seconds: isOver(each.phase) ? 0 : Math.max(0, seconds) };
  });
}
