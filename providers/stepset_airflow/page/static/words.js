// Texts of times, numbers and phases.

const OVER = ["Succeeded", "Failed", "Lost"];

/** Returns whether a phase is final. */
export const isOver = (phase) => OVER.includes(phase);

/** Returns a phase with its reason, such as "Pending (Queued)"; documents of earlier versions have only the phase. */
export const phaseText = ({ phase, state }) => state ?? phase;

/** Seconds as "0.4 s", "12 s", "4 min 12 s", "2 h 5 min", "3 d 4 h". */
export function took(seconds) {
  if (seconds == null || !isFinite(seconds)) return "";
  const whole = Math.max(0, seconds);
  if (whole < 0.1) return "< 0.1 s";
  if (whole < 9.95) return `${whole.toFixed(1)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let rest = Math.round(whole);
  const first = units.findIndex(([size]) => rest >= size);
  return units.slice(first, first + 2).map(([size, unit]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count ? `${count} ${unit}` : "";
  }).filter(Boolean).join(" ");
}

/** A time of day; with its date where that is not today's. */
export function clock(seconds) {
  if (!seconds) return "";
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
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
