/** The history as chips, each in the colour that it has in every bar. */

import { byId, el } from "./dom.js";
import { COLOURS, colourOf, nameOf } from "./names.js";
import { change, current } from "./state.js";

const SHOWN = innerWidth < 640 ? 8 : 16;
let all = false;

/** Draws the history; `unknown` are ids that the model does not have. */
export function chips(history, unknown = []) {
  const home = byId("chips");
  const told = history.map((item) => [String(item), nameOf(item), colourOf(item)]);
  const drawn = JSON.stringify([all, unknown.map(String), told]);
  if (home.dataset.drawn === drawn) return;
  home.dataset.drawn = drawn;
  const shown = all || history.length <= SHOWN + 2 ? history : worthShowing(history);
  const hidden = history.length - shown.length;
  const button = { type: "button", class: "more", click: () => expand(history, unknown) };
  const more = hidden ? [el("li", {}, el("button", button, `and ${hidden} more`))] : [];
  // Who removes one by keyboard goes on at the next: the focus stays at its place in the row.
  const at = [...home.querySelectorAll("button")].indexOf(document.activeElement);
  home.replaceChildren(...shown.map((item) => chip(item, unknown.includes(item))), ...more);
  if (at < 0) return;
  const left = home.querySelectorAll("button");
  (left[Math.min(at, left.length - 1)] ?? byId("search")).focus();
}

/** Of a long history: all that have a colour, and the first of the others, in their order. */
function worthShowing(history) {
  const others = history.filter((item) => colourOf(item) === COLOURS);
  const left = new Set(others.slice(Math.max(0, SHOWN - (history.length - others.length))));
  return history.filter((item) => !left.has(item));
}

function expand(history, unknown) {
  all = true;
  chips(history, unknown);
}

function chip(item, unknown) {
  const name = nameOf(item);
  return el(
    "li",
    {
      class: unknown ? "chip unknown" : "chip",
      "data-colour": colourOf(item),
      title: unknown ? `${name}: the model does not know this item` : name,
    },
    el("bdi", { class: "called" }, name),
    el("button", { type: "button", "aria-label": `Remove ${name}`, click: () => remove(item) }, "×"),
  );
}

const remove = (item) => change({ history: current().history.filter((other) => other !== item) });
