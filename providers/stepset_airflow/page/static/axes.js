// The axes of a chart. They determine the positions of values, the ticks, and the labels of the ticks.

import { s } from "./dom.js";
import { ticks } from "./ticks.js";
import { number } from "./words.js";

const LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 20;
const LABEL = 52; // width of a label of the horizontal axis
const LARGEST = 1e300; // the length of an axis must be a finite number

/** Returns whether a value can be drawn. A missing value is null and cannot be drawn. */
export const isDrawn = (value) => value != null && Math.abs(value) <= LARGEST;

/**
 * Returns the axes of a chart. `across` and `up` convert a value to a position. `top` and `floor` are the ends of the
 * vertical axis. `grid` contains the elements to draw.
 *
 * @param size the width and the height of the chart.
 * @param xs the horizontal values of the points.
 * @param ys the vertical values of the points.
 */
export function makeAxes([width, height], xs, ys) {
  const [x0, x1] = range(xs), [y0, y1] = padded(range(ys));
  const floor = height - BOTTOM;
  const across = (x) => LEFT + ((x - x0) / (x1 - x0 || 1)) * (width - LEFT - RIGHT);
  const up = (y) => TOP + (1 - (y - y0) / (y1 - y0)) * (floor - TOP);
  const grid = [
    ...ticks(y0, y1).map((y) => s("g", { class: "tick" },
      s("line", { x1: LEFT, x2: width - RIGHT, y1: up(y), y2: up(y) }),
      s("text", { x: LEFT - 6, y: up(y) + 3.5, "text-anchor": "end" }, number(y)))),
    ...spread(x0, x1, width - LEFT - RIGHT).map((x) => s("text", {
      x: across(x), y: height - 4, "text-anchor": width - across(x) < LABEL / 2 ? "end" : "middle", class: "axis",
    }, number(x))),
  ];
  return { across, up, top: TOP, floor, grid };
}

// Math.min(...values) is not used, because the number of arguments of a function is limited.
function range(values) {
  const ends = [Infinity, -Infinity];
  for (const value of values.filter(isDrawn)) {
    ends[0] = Math.min(ends[0], value);
    ends[1] = Math.max(ends[1], value);
  }
  return isFinite(ends[0]) ? ends : [0, 1];
}

function padded([low, high]) {
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

/** Returns the ticks of the horizontal axis. If there is no space for a label, the tick is omitted. */
function spread(low, high, width) {
  const every = ticks(low, high), skip = Math.ceil((every.length * LABEL) / width);
  return every.filter((_, index) => index % skip === 0);
}
