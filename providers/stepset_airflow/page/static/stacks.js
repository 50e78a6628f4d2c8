// The stacks of a run's ranks, which the server reads when the user presses the button.

import { h, write } from "./dom.js";

const ABOUT = "Shows where each rank is in the code now. The ranks continue.";

/**
 * Returns the card. It has the members `element` and `show`.
 *
 * @param path the path of the document with the stacks, relative to the page.
 * @param announce announces a text to screen readers.
 */
export function makeStacks(path, announce) {
  const button = h("button", { type: "button", onclick: read }, "Read the stacks");
  const note = h("p", { class: "muted small" }, ABOUT);
  const shown = h("div");
  const card = h("section", { class: "card stacks", "aria-labelledby": "stacks", hidden: true },
    h("h2", { id: "stacks" }, "Stacks"), h("div", { class: "read" }, button, note), shown);
  let reading = false;

  function read() {
    if (reading) return;
    setReading(true, "The ranks are asked for their stacks.");
    // A new frame has no history, so the browser's button Back leaves the page.
    const frame = h("iframe", { title: "Stacks of the ranks", sandbox: "", src: path, hidden: true });
    frame.addEventListener("load", () => {
      frame.hidden = false;
      setReading(false, ABOUT);
      announce("The stacks are shown.");
    });
    shown.replaceChildren(frame);
  }

  function setReading(now, text) {
    reading = now;
    button.setAttribute("aria-disabled", String(now));
    write(note, text);
  }

  /** Shows the button while the run is running. Stacks that were read remain. */
  function show(training, allowed) {
    const running = allowed && training !== null && training.phase === "Running";
    button.hidden = note.hidden = !running;
    card.hidden = training === null || !(running || shown.firstChild);
  }

  return { element: card, show };
}
