// Round values for the axis of a chart. stepset/html/ticks.py uses the same rule.

const LEAST = 3n; // steps that fit into the range at least
const ROUND = [5n, 2n, 1n];

/**
 * Returns 3 to 8 round values in a range, in ascending order. A round value is a multiple of 1, 2 or 5 times a power
 * of ten.
 *
 * @param low, high the finite ends of the range, `low` below `high`.
 */
export function ticks(low, high) {
  const ends = [low, high].map(decimal);
  let exponent = Math.min(...ends.map((each) => each.exponent));
  let [first, last] = ends.map((each) => each.digits * 10n ** BigInt(each.exponent - exponent));
  if (first >= last) return [low];
  // Digits are whole numbers, because the product of two floating-point numbers may be 0.30000000000000004.
  for (let power = String(last - first).length; ; power -= 1) {
    if (power < 0) [first, last, exponent, power] = [first * 10n, last * 10n, exponent - 1, 0];
    for (const factor of ROUND) {
      const step = factor * 10n ** BigInt(power);
      if (last - first < LEAST * step) continue;
      const found = [];
      for (let number = ceil(first, step); number <= floor(last, step); number += 1n) {
        found.push(Number(`${number * step}e${exponent}`));
      }
      return [...new Set(found)];
    }
  }
}

const floor = (number, by) => number / by - (number % by < 0n ? 1n : 0n);
const ceil = (number, by) => -floor(-number, by);

/** Splits the shortest decimal form of a number into a whole number and a power of ten. */
function decimal(number) {
  const [text, exponent] = number.toExponential().split("e");
  const [whole, rest = ""] = text.split(".");
  return { digits: BigInt(whole + rest), exponent: Number(exponent) - rest.length };
}
