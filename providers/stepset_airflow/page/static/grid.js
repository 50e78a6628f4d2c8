// Moves the focus through a table with the arrow keys. The Tab key moves the focus past the table.

const PAGE = 10;

/**
 * Converts a table to a grid. The focus is on a cell, or on the first link of a cell. The Enter key follows the first
 * link of the row.
 *
 * Each row of the table's body must have a unique `data-key`.
 *
 * @returns an object with two functions. `update` calls a function that changes rows, and preserves the focus. `focus`
 *     moves the focus to the grid.
 */
export function makeGrid(table) {
  const [body] = table.tBodies;
  let here = { key: null, column: 0 }, used = false;
  table.setAttribute("role", "grid");
  table.addEventListener("keydown", key);
  table.addEventListener("focusin", focused);

  const visible = () => [...body.rows].filter((row) => !row.hidden);
  const stop = (cell) => cell.querySelector("a") ?? cell;
  const current = () => visible().find((row) => row.dataset.key === here.key);

  /** Selects the cell that the Tab key focuses: the cell that had the focus last, or initially the first cell. */
  function rove() {
    if (!used || !current()) here = { key: visible()[0]?.dataset.key ?? null, column: 0 };
    for (const row of body.rows) {
      [...row.cells].forEach((cell, column) => {
        const focusable = stop(cell);
        for (const link of cell.querySelectorAll("a")) link.tabIndex = -1;
        focusable.tabIndex = row.dataset.key === here.key && column === here.column ? 0 : -1;
      });
    }
  }

  function update(change) {
    const had = body.contains(document.activeElement);
    change();
    rove();
    if (had && !body.contains(document.activeElement)) focus();
  }

  function focus() {
    const row = current();
    if (row) stop(row.cells[here.column]).focus();
  }

  function focused(event) {
    const cell = event.target.closest("tbody > tr > *");
    if (!cell) return;
    used = true;
    here = { key: cell.parentElement.dataset.key, column: cell.cellIndex };
    rove();
  }

  function key(event) {
    if (!body.contains(event.target) || event.altKey || event.metaKey) return;
    const rows = visible(), row = rows.findIndex((each) => each.dataset.key === here.key);
    if (row < 0) return;
    const last = rows.length - 1, end = rows[row].cells.length - 1;
    if (event.key === "Enter" && event.target.tagName !== "A") {
      rows[row].querySelector("a")?.click();
      return;
    }
    const to = {
      ArrowDown: [row + 1, here.column], ArrowUp: [row - 1, here.column],
      ArrowRight: [row, here.column + 1], ArrowLeft: [row, here.column - 1],
      PageDown: [row + PAGE, here.column], PageUp: [row - PAGE, here.column],
      Home: [event.ctrlKey ? 0 : row, 0], End: [event.ctrlKey ? last : row, end],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const within = (value, most) => Math.max(0, Math.min(most, value));
    stop(rows[within(to[0], last)].cells[within(to[1], end)]).focus();
  }

  return { update, focus };
}
