// The filters and the pager of the list of runs. The URL of the page contains the current filters.

import { h, write } from "./dom.js";

const PHASES = ["Pending", "Running", "Suspended", "Restarting", "Succeeded", "Failed", "Lost"];
const DAYS = [["", "Any time"], ["1", "Last day"], ["7", "Last 7 days"], ["30", "Last 30 days"]];
const TYPING = 250; // milliseconds after the last key, before the text is applied

/**
 * Returns an object with the members `element`, `pager`, `wanted`, `show`, `clear` and `focus`.
 *
 * @param query the query of the page's URL.
 * @param changed is called after each change.
 * @param leave is called to move the focus from the search to the runs.
 */
export function makeFilters(query, changed, leave) {
  let timer = 0;
  const apply = () => {
    clearTimeout(timer);
    chosen.page = 1;
    update();
  };
  const text = h("input", {
    type: "search", placeholder: "DAG, task or run", maxlength: 200, autocomplete: "off", spellcheck: "false",
    oninput() { clearTimeout(timer); timer = setTimeout(apply, TYPING); },
    onchange: apply,
    onkeydown(event) {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      leave();
    },
  });
  const phase = select([["", "Any state"], ...PHASES.map((each) => [each, each])], apply);
  const days = select(DAYS, apply);
  const count = h("p", { class: "muted small count", role: "status" });
  const previous = h("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const next = h("button", { type: "button", onclick: () => turn(1) }, "Next");
  const pager = h("nav", { class: "pager", "aria-label": "Pages", hidden: true }, previous, next);
  const fields = { text, phase, days };
  const chosen = { page: Math.max(1, Math.min(1e6, Number.parseInt(query.get("page") ?? "1", 10) || 1)) };
  for (const [name, field] of Object.entries(fields)) {
    const given = query.get(name) ?? "";
    if (field === text || [...field.options].some((option) => option.value === given)) field.value = given.slice(0, 200);
  }

  function wanted() {
    const found = new URLSearchParams();
    for (const [name, field] of Object.entries(fields)) if (field.value.trim()) found.set(name, field.value.trim());
    if (chosen.page > 1) found.set("page", chosen.page);
    return found;
  }

  function update() {
    const found = String(wanted());
    history.replaceState(null, "", found ? `?${found}` : location.pathname);
    changed();
  }

  function turn(by) {
    if ((by < 0 ? previous : next).getAttribute("aria-disabled") === "true") return;
    chosen.page += by;
    update();
  }

  return {
    element: h("search", { class: "filters" },
      label("Search", text), label("State", phase), label("Changed", days), count),
    pager,
    wanted,
    /** Shows the range of runs on the page, and whether there are other pages. */
    show({ runs, total, page, size }) {
      chosen.page = page;
      const first = (page - 1) * size, last = first + runs.length;
      write(count, total === 0 ? "" : last - first === total ? `${total.toLocaleString()} in total`
        : `${(first + 1).toLocaleString()}–${last.toLocaleString()} of ${total.toLocaleString()}`);
      pager.hidden = total <= size;
      enable(previous, page > 1);
      enable(next, last < total);
    },
    /** Returns whether any filter is set. */
    active: () => Object.values(fields).some((field) => field.value.trim() !== ""),
    clear() {
      for (const field of Object.values(fields)) field.value = "";
      apply();
      text.focus();
    },
    /** Moves the focus to the search. */
    focus() {
      text.focus();
      text.select();
    },
  };
}

// The attribute `disabled` is not used, because a disabled button loses the focus.
function enable(button, possible) {
  button.setAttribute("aria-disabled", String(!possible));
}

const label = (name, field) => h("label", {}, h("span", {}, name), field);

const select = (options, onchange) =>
  h("select", { onchange }, options.map(([value, name]) => h("option", { value }, name)));
