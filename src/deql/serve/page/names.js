/** What items are called, and the colour each item of the history has. */

const titles = new Map();

/** Remembers the titles in an answer's records. */
export function learn(records) {
  for (const { item, title } of records) if (title) titles.set(item, title);
}

/** What people call an item. */
export function nameOf(item) {
  const name = titles.get(item) ?? String(item);
  return name.trim() ? name : `“${name}”`;
}

/** How many items have a colour of their own; the others share the grey one, which comes after. */
export const COLOURS = 8;
const places = new Map();

/** The colour of an item, as a number; COLOURS is grey. */
export const colourOf = (item) => places.get(item) ?? COLOURS;

/** Gives free colours to those who matter most, and lets go of those who left; nobody's colour ever changes.
 *
 * `weights` says how much each item of the history moves the list, so that a long history spends its few colours
 * on what is seen. */
export function colour(history, weights) {
  const here = new Set(history);
  for (const item of places.keys()) if (!here.has(item)) places.delete(item);
  const taken = new Set(places.values());
  const free = Array.from({ length: COLOURS }, (_, place) => place).filter((place) => !taken.has(place));
  const bare = history.filter((item) => !places.has(item));
  bare.sort((one, other) => (weights.get(other) ?? 0) - (weights.get(one) ?? 0));
  bare.slice(0, free.length).forEach((item, at) => places.set(item, free[at]));
}

/** Some of many names, and how many more there are; one more is told as well. */
export function some(names, most = 3) {
  const more = names.length - most;
  return more > 1 ? `${names.slice(0, most).join(", ")} and ${whole(more)} more` : names.join(", ");
}

/** A number with its sign, as it is read in a sum. */
export const signed = (value, digits = 3) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

/** A whole number with its thousands apart. */
export const whole = (value) => value.toLocaleString("en-US");

/** So many of something, in words. */
export const many = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

/** How many people have an item, in words. */
export const had = (count) => `${many(count, "user")} ${count === 1 ? "has" : "have"} it`;

/** A number as short as it stays true to six digits. */
export const short = (value) => String(Number(Number(value).toPrecision(6)));
