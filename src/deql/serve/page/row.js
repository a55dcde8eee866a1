/** One recommendation: its rank, its name, its score, and why. */

import { el, setText } from "./dom.js";
import { COLOURS, colourOf, nameOf, signed, some } from "./names.js";

// A piece of less than this share of the widest bar would be a hair.
const THIN = 0.012;
// Reasons that are told at once; the others are one line, until somebody wants them.
const FIRST = 8;
// Pieces that belong to no single item; no id can be the same as these.
const POPULAR = Symbol("popularity");
const OTHERS = { for: Symbol("others for"), against: Symbol("others against") };

/** A row for an item; `act` has what its buttons do: add(item), open(item). */
export function row(item, act) {
  const name = nameOf(item);
  const parts = el("div", { class: "parts", hidden: true });
  const why = el("button", { type: "button", class: "why", "aria-expanded": "false" }, "›");
  const made = {
    item,
    rank: el("span", { class: "rank" }),
    badge: el("span", { class: "badge", "aria-hidden": "true" }),
    bar: el("span", { class: "bar", "aria-hidden": "true" }, el("span", { class: "zero" })),
    score: el("span", { class: "score" }),
    own: el("span", { class: "own" }),
    segments: new Map(),
    parts,
    all: false,
    why,
    shown: null,
  };
  made.element = el("li", { class: "row", "data-item": String(item) },
    made.rank, made.badge,
    el("button", { type: "button", class: "name", title: `${name}: show its neighbourhood`,
      click: () => act.open(item) }, el("bdi", {}, name)),
    made.bar, made.score, made.own,
    el("button", { type: "button", class: "add", "aria-label": `Add ${name} to the history`,
      title: "Add to the history", click: () => act.add(item) }, "+"),
    why, parts);
  why.addEventListener("click", () => {
    parts.hidden = !parts.hidden;
    why.setAttribute("aria-expanded", String(!parts.hidden));
    if (made.shown) drawParts(made);
  });
  return made;
}

/** Puts a recommendation on its row; `span` is the common scale of all bars, [least, largest]. */
export function drawRow(made, recommendation, at, span) {
  made.shown = recommendation;
  made.digits = digitsFor(span[1]);
  setText(made.rank, String(at + 1));
  setText(made.score, recommendation.score.toFixed(made.digits).replace("-", "−"));
  made.score.title = String(recommendation.score);
  made.why.setAttribute("aria-label", `Why ${nameOf(made.item)}`);
  drawBar(made, span);
  drawParts(made);
}

/** Decimals that tell scores of this size apart. */
const digitsFor = (largest) => Math.max(3, Math.min(8, 2 - Math.floor(Math.log10(largest || 1))));

/** The pieces of a bar: one for each item, and one of each sign for the grey and the thin ones of a long history. */
function pieces({ because = [], rest = 0, score, popular }, width) {
  if (popular) return [{ key: POPULAR, colour: COLOURS, value: score, name: "popularity" }];
  const long = because.length > COLOURS;
  const alone = (item, value) => !long || (colourOf(item) < COLOURS && Math.abs(value) >= THIN * width);
  const found = [];
  const others = { for: { value: 0, names: [] }, against: { value: 0, names: [] } };
  for (const { item, value } of because) {
    const group = others[value < 0 ? "against" : "for"];
    if (alone(item, value)) found.push({ key: item, colour: colourOf(item), value, name: nameOf(item) });
    else {
      group.value += value;
      group.names.push(nameOf(item));
    }
  }
  found.sort((one, other) => one.colour - other.colour);
  others[rest < 0 ? "against" : "for"].value += rest;
  for (const [sign, { value, names }] of Object.entries(others))
    if (value) found.push({ key: OTHERS[sign], colour: COLOURS, value, name: together(names, rest) });
  return found;
}

/** Names of those who share a piece: the largest, and how many more, where all have names. */
function together(names, rest) {
  return !names.length || rest ? [...names.slice(0, 3), "all others"].join(", ") : some(names);
}

/** How far bars reach to the left and to the right of zero. */
export function reach({ because = [], rest = 0, score, popular }) {
  let left = 0;
  let right = 0;
  const values = popular ? [score] : [...because.map(({ value }) => value), rest];
  for (const value of values) value < 0 ? (left += value) : (right += value);
  return [left, right];
}

function drawBar(made, [least, largest]) {
  const width = largest - least || 1;
  const percent = (value) => `${((100 * value) / width).toFixed(3)}%`;
  let left = 0;
  let right = 0;
  const here = new Set();
  for (const { key, colour, value, name } of pieces(made.shown, width)) {
    here.add(key);
    let segment = made.segments.get(key);
    if (!segment) {
      segment = el("span", { class: "piece", "data-of": typeof key === "symbol" ? null : String(key) });
      made.segments.set(key, segment);
      made.bar.append(segment);
    }
    segment.dataset.colour = colour;
    segment.dataset.value = value;
    segment.dataset.tip = `${name} ${signed(value, made.digits + 1)}`;
    segment.classList.toggle("against", value < 0);
    const from = value < 0 ? (left += value) : right;
    if (value >= 0) right += value;
    segment.style.left = percent(from - least);
    segment.style.width = percent(Math.abs(value));
  }
  for (const [key, segment] of made.segments) {
    if (here.has(key)) continue;
    segment.remove();
    made.segments.delete(key);
  }
  made.bar.firstChild.style.left = percent(-least);
}

function drawParts(made) {
  if (made.parts.hidden) return;
  const { because = [], rest = 0, score, popular } = made.shown;
  const digits = made.digits + 3;
  const line = (colour, name, value, kind, shared = []) =>
    el("tr", { class: kind },
      el("th", { scope: "row" }, el("span", { class: "dot", "data-colour": colour }), el("bdi", {}, name),
        ...(shared.length ? [el("span", { class: "shared" }, ` shares ${some(shared)}`)] : [])),
      el("td", { "data-value": value }, kind ? value.toFixed(digits).replace("-", "−") : signed(value, digits)));
  const reason = ({ item, value, shared }) => line(colourOf(item), nameOf(item), value, undefined, shared);
  const folded = made.all || because.length <= FIRST + 1 ? [] : because.slice(FIRST);
  const lines = because.slice(0, because.length - folded.length).map(reason);
  if (folded.length) lines.push(fold(made, folded, line));
  if (rest) lines.push(line(COLOURS, popular ? "share of users who have it" : "all others", rest));
  lines.push(line("none", "score", score, "sum"));
  const caption = el("caption", { class: "unseen" }, `What adds up to the score of ${nameOf(made.item)}`);
  made.parts.replaceChildren(el("table", {}, caption, el("tbody", {}, ...lines)));
}

/** The reasons after the first few, as their sum, and a button that tells them one by one. */
function fold(made, reasons, line) {
  const sum = reasons.reduce((total, { value }) => total + value, 0);
  const told = line(COLOURS, "", sum);
  const more = el("button", { type: "button", class: "fold", "aria-expanded": "false" }, `${reasons.length} more`);
  more.addEventListener("click", () => {
    made.all = true;
    drawParts(made);
    // The button is gone: the keyboard goes on at the row that it opened.
    made.why.focus();
  });
  told.querySelector("bdi").replaceWith(more);
  return told;
}
