// Texts of times, numbers and phases.

import { timeZone } from "./timezone.js";

const OVER = ["Succeeded", "Failed", "Lost"];

/** Returns whether a phase is final. */
export const isOver = (phase) => OVER.includes(phase);

/** Returns a phase with its reason, such as "Pending (Queued)"; documents of earlier versions have only the phase. */
export const phaseText = ({ phase, state }) => state ?? phase;

/** Returns a duration such as "3.2 s", "1m15s", "1h02m", like `duration` in stepset/watch/present/sentences.py. */
export function duration(seconds) {
  if (seconds == null || !isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.max(0, seconds).toFixed(1).replace(/\.0$/, "")} s`;
  const padded = (number) => String(Math.floor(number)).padStart(2, "0");
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  return hours ? `${hours}h${padded(minutes % 60)}m` : `${minutes}m${padded(seconds % 60)}s`;
}

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

/** "1 rank", "2 ranks". */
export const count = (many, word) => `${many.toLocaleString()} ${word}${many === 1 ? "" : "s"}`;

/** Returns a task's name with its map index, or with the iteration of the loop that it is in. */
export function taskName(task) {
  const index = task.map_index >= 0 ? ` [${task.map_index}]`
    : task.region_index === undefined ? "" : `, iteration ${task.region_index}`;
  return `${task.dag_id} · ${task.task_id}${index}`;
}
