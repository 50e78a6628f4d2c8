// Events of a run that no other part of the page shows.

import { h } from "./dom.js";
import { clock } from "./words.js";

// The card "Phases" shows the phases. The head of the page and the diagnosis show the end of the run.
const ELSEWHERE = ["PhaseChanged", "RunEnded"];

/** Returns the view of the events. It has the members `element` and `show(training, replaced)`. */
export function makeEvents() {
  const list = h("ol", { class: "events" });
  const card = h("section", { class: "card", "aria-labelledby": "events", hidden: true },
    h("h2", { id: "events" }, "Events"), list);
  let shown = "";
  return {
    element: card,
    /** Shows the events. `replaced` is the index of the event that another card already shows. */
    show({ events = [] }, replaced) {
      const left = events.filter((each, index) => !ELSEWHERE.includes(each.kind) && index !== replaced);
      card.hidden = left.length === 0;
      const text = JSON.stringify(left);
      if (text === shown) return;
      shown = text;
      list.replaceChildren(...left.map((each) => h("li", { "data-level": each.level },
        h("span", { class: "muted" }, clock(each.at)), ` ${each.text}${each.time ? ` ${clock(each.time)}` : ""}`)));
    },
  };
}
