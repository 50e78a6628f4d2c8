// Converts times, numbers and phases to strings.

import { timeZone } from "./timezone.js";

const OVER = ["Succeeded", "Failed", "Lost"];

/** Returns whether a phase is final. */
export const isOver = (phase) => OVER.includes(phase);

/** Returns a phase with its reason, such as "Pending (Queued)". Data of earlier versions contains only the phase. */
export const phaseText = ({ phase, state }) => state ?? phase;

/** Returns a duration such as "3.2 s", "1m15s", "1h02m", "2d07h", like `duration` in stepset/watch/present/sentences.py. */
export function duration(seconds) {
  if (seconds == null || !isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.max(0, seconds).toFixed(1).replace(/\.0$/, "")} s`;
  const padded = (number) => String(Math.floor(number)).padStart(2, "0");
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)}d${padded(hours % 24)}h`;
  return hours ? `${hours}h${padded(minutes % 60)}m` : `${minutes}m${padded(seconds % 60)}s`;
}

/** Returns a fraction as whole percent, rounded down, like `percent` in stepset/watch/present/sentences.py. */
export const percent = (share) => Math.floor(Number((100 * share).toFixed(6)));

/** Returns a time of day in the time zone of Airflow's UI, with the date unless it is today. */
export function clock(seconds) {
  if (!seconds) return "";
  const at = new Date(seconds * 1000), zone = { timeZone: timeZone() };
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", ...zone });
  const date = at.toLocaleDateString([], zone);
  return date === new Date().toLocaleDateString([], zone) ? time : `${date} ${time}`;
}

/** Returns a metric's value with a readable number of digits. */
export function number(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (value !== 0 && (size >= 1e6 || size < 1e-3)) return Number(value.toPrecision(3)).toExponential();
  return value.toLocaleString(undefined, { maximumSignificantDigits: size >= 1000 ? 6 : 4 });
}

/** Returns whether the user may read the task's log. */
export const mayReadLog = ({ withheld }) => !withheld?.includes("task logs");

/** "1 rank", "2 ranks". */
export const count = (many, word) => `${many.toLocaleString()} ${word}${many === 1 ? "" : "s"}`;

/** Returns a task's name with the map index. If the task is in a loop, returns the name with the iteration. */
export function taskName(task) {
  const index = task.map_index >= 0 ? ` [${task.map_index}]`
    : task.region_index === undefined ? "" : `, iteration ${task.region_index}`;
  return `${task.dag_id} · ${task.task_id}${index}`;
}

/** Returns the query of a task's page. */
export const linkTo = (task) => new URLSearchParams({
  dag_id: task.dag_id, run_id: task.run_id, task_id: task.task_id, map_index: task.map_index,
  ...(task.region_id && { region_id: task.region_id, region_index: task.region_index }),
});

/** Returns the query of the page that compares the runs of a mapped task. */
export const sweepOf = (task) => new URLSearchParams({
  dag_id: task.dag_id, run_id: task.run_id, task_id: task.task_id, view: "sweep",
});

/** Returns the query of the page with the lines of a rank, or of another source, in the task's log. */
export const logOf = (task, source) => new URLSearchParams([...linkTo(task), ["view", "log"], ["source", source]]);
