/** The history as chips, each in the colour that it has in every bar. A long one takes two lines until it is opened. */

import { byId, el, onWidth, setText } from "./dom.js";
import { colourOf, nameOf } from "./names.js";
import { change, current } from "./state.js";

const LINES = 2;
// More than any two lines hold, so that a history of a thousand is not laid out to show ten.
const MOST = 60;
let all = false;
let last = { history: [], unknown: [] };

/** Draws the history; `unknown` are ids that the model does not have. */
export function chips(history, unknown = []) {
  const home = byId("chips");
  const told = history.map((item) => [String(item), nameOf(item), colourOf(item)]);
  const drawn = JSON.stringify([all, unknown.map(String), told]);
  if (home.dataset.drawn === drawn) return;
  home.dataset.drawn = drawn;
  last = { history, unknown };
  // Who removes one by keyboard goes on at the next: the focus stays at its place in the row.
  const at = [...home.querySelectorAll("button")].indexOf(document.activeElement);
  const chosen = (items) => items.map((item) => chip(item, unknown.includes(item)));
  home.replaceChildren(...chosen(history.slice(0, all ? undefined : MOST)));
  if (lines(home) > LINES) {
    const button = el("button", { type: "button", class: "more", "aria-expanded": String(all), click: turn });
    if (!all) home.replaceChildren(...chosen(worthShowing(history)));
    home.append(el("li", {}, button));
    if (all) setText(button, "show fewer");
    else fit(home, button, history.length);
  }
  if (at < 0) return;
  const left = home.querySelectorAll("button");
  (left[Math.min(at, left.length - 1)] ?? byId("search")).focus();
}

/** Draws again in another width, where another number fits. */
export function keepFitting() {
  onWidth(byId("chips"), redraw);
}

function redraw() {
  delete byId("chips").dataset.drawn;
  chips(last.history, last.unknown);
}

function turn() {
  all = !all;
  redraw();
}

const lines = (home) => new Set([...home.children].map((child) => child.offsetTop)).size;

/** Takes chips away, but never the newest, until they and the button fit. */
function fit(home, button, count) {
  const say = () => setText(button, `and ${count - home.children.length + 1} more`);
  for (say(); lines(home) > LINES && home.children.length > 2; say()) home.children[home.children.length - 3].remove();
}

/** Of a long history those with a colour, in the order of the bars, then the others; the newest is the last. */
function worthShowing(history) {
  const newest = history.at(-1);
  const others = history.slice(0, -1).sort((one, other) => colourOf(one) - colourOf(other));
  return [...others.slice(0, MOST), newest];
}

function chip(item, unknown) {
  const name = nameOf(item);
  return el(
    "li",
    {
      class: unknown ? "chip unknown" : "chip",
      "data-colour": colourOf(item),
      "data-of": String(item),
      title: unknown ? `${name}: the model does not know this item` : name,
    },
    el("bdi", { class: "called" }, name),
    el("button", { type: "button", "aria-label": `Remove ${name}`, click: () => remove(item) }, "×"),
  );
}

const remove = (item) => change({ history: current().history.filter((other) => other !== item) });
