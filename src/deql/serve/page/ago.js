/** How long ago something was, in words that stay true while the page is open. */

import { el, setText } from "./dom.js";
import { many } from "./names.js";

const UNITS = [["day", 86_400], ["hour", 3600], ["minute", 60]];
// Milliseconds between looks at the clock.
const LOOK = 5000;

/** So many seconds ago, by the largest unit that is full. */
export function inWords(seconds) {
  const [noun, size] = UNITS.find(([, size]) => seconds >= size) ?? [];
  return noun ? `${many(Math.floor(seconds / size), noun)} ago` : "just now";
}

/** A time as an element that says how long ago that is; pointed at, it says when exactly. */
export function ago(moment) {
  const said = el("time", { datetime: moment.toISOString(), title: moment.toLocaleString() });
  const say = () => setText(said, inWords((Date.now() - moment) / 1000));
  const looking = setInterval(() => (said.isConnected ? say() : clearInterval(looking)), LOOK);
  say();
  return said;
}
