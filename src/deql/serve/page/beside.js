/** Two models on one history: both lists, and how ranks move from one to the other. */

import { ask, latest } from "./api.js";
import { byId, el, setText, svg } from "./dom.js";
import { learn, nameOf, some } from "./names.js";
import { change, overrides } from "./state.js";

// How far ranks are known beyond what is shown.
const KNOWN = 200;

/** A choice among models, by their names and kinds. */
export function choice(models, chosen, label, pick) {
  const option = ({ name, model }) => el("option", { value: name, selected: name === chosen }, `${name}: ${model}`);
  const select = el("select", { "aria-label": label }, ...models.map(option));
  select.addEventListener("change", () => pick(select.value));
  return select;
}

/** Builds the panel for a server with several models, of which `own` is looked at.
 *
 * Returns `show(state, list)`; `open(item)` shows a neighbourhood, `failed` hears of refusals. */
export function beside(models, own, limit, { open, failed }) {
  const others = models.filter(({ name }) => name !== own.name);
  if (!others.length) return () => {};
  const home = byId("beside");
  const reach = Math.min(KNOWN, limit);
  const chosen = (state) => others.find(({ name }) => name === state.beside) ?? others[0];
  let last = { key: null };
  byId("beside-card").hidden = false;
  highlight(home);
  home.addEventListener("click", (event) => {
    const at = event.target.closest(".side .name");
    if (at) open(at.item);
  });

  /** Names both; drawn anew only for another one, so that the choice keeps the focus. */
  function head({ name }) {
    const heading = byId("beside-heading");
    if (heading.dataset.of === name) return;
    heading.dataset.of = name;
    const pick = (chosen) => change({ beside: chosen === others[0].name ? null : chosen });
    const second = others.length > 1 ? choice(others, name, "The other model", pick) : el("bdi", {}, name);
    heading.replaceChildren(el("bdi", {}, own.name), " beside ", second);
  }

  /** The other model as it was fitted: sliders do not move it, so it is asked once for each history. */
  async function other({ name }, history) {
    const key = JSON.stringify([name, ...history.map(String)]);
    if (last.key === key) return last.list;
    const { answer } = await ask("v1/recommend", { histories: [history], k: reach }, name);
    last = { key, list: answer.results[0] };
    learn(last.list.recommendations);
    return last.list;
  }

  return latest(async (stale, state, list) => {
    try {
      const model = chosen(state);
      const right = await other(model, state.history);
      const asked = { histories: [state.history], k: Math.max(reach, list.length), ...overrides(state) };
      const { answer } = await ask("v1/recommend", asked);
      if (stale()) return;
      head(model);
      const ranks = [answer.results[0].recommendations, right.recommendations].map(ranksOf);
      const lists = [list.map(({ item }) => item), right.recommendations.slice(0, list.length).map(({ item }) => item)];
      draw(home, lists, ranks, [own, model], reach);
      setText(byId("beside-says"), inWords(lists, ranks, model, right));
    } catch (error) {
      failed(error);
    }
  });
}

const ranksOf = (list) => new Map(list.map(({ item }, at) => [item, at + 1]));

function draw(home, lists, ranks, models, reach) {
  const rows = Math.max(...lists.map(({ length }) => length), 1);
  const lines = svg("svg", {
    class: "lines", viewBox: `0 0 100 ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true",
  });
  lists[0].forEach((item, at) => {
    const to = lists[1].indexOf(item);
    if (to < 0) return;
    const [from, end] = [at + 0.5, to + 0.5];
    lines.append(svg("path", { class: `move ${direction(at - to)}`, "data-of": String(item),
      d: `M0 ${from}C45 ${from} 55 ${end} 100 ${end}` }));
  });
  const side = (which) => {
    const other = 1 - which;
    const rows = lists[which].map((item, at) => {
      const there = ranks[other].get(item);
      const both = lists[other].includes(item);
      return both ? row(item, at, which ? there - at - 1 : 0) : row(item, at, null, there, reach);
    });
    const { name, model } = models[which];
    return el("ol", { class: "side", role: "list", "aria-label": `${name}, ${model}` }, ...rows);
  };
  home.replaceChildren(side(0), lines, side(1));
  home.style.setProperty("--rows", rows);
}

const direction = (by) => (by > 0 ? "up" : by < 0 ? "down" : "same");

/** An item of one list and how it moved: `by` so many places, or null if it is not on the other list.
 *
 * `there` is where the other model has it then, if it is among the first `reach`. */
function row(item, at, by, there, reach) {
  const called = nameOf(item);
  const name = el("button", { type: "button", class: "name", title: `${called}: show its neighbourhood` });
  name.append(el("bdi", {}, called));
  name.item = item;
  const places = Math.abs(by);
  let [sign, said] = ["", ""];
  if (by) {
    sign = `${by > 0 ? "▲" : "▼"}${places}`;
    said = `${by > 0 ? "up" : "down"} ${places} ${places === 1 ? "place" : "places"}`;
  } else if (by === null) {
    sign = there ? `#${there}` : `>${reach}`;
    said = `only on this list; ${there ? "" : "not among the first "}${there ?? reach} by the other model`;
  }
  return el("li", { class: by === null ? "only" : direction(by), "data-of": String(item) },
    el("span", { class: "rank" }, String(at + 1)), name,
    el("span", { class: "moved", title: said },
      el("span", { "aria-hidden": "true" }, sign), el("span", { class: "unseen" }, said)));
}

function inWords([left, right], [, ranks], { name }, { unknown, from_popularity: popular }) {
  const both = left.filter((item) => right.includes(item));
  const moves = both.map((item) => ({ item, by: Math.abs(ranks.get(item) - left.indexOf(item) - 1) }));
  const most = moves.reduce((one, other) => (other.by > one.by ? other : one), { by: 0 });
  const places = moves.filter(({ by }) => by).length;
  const words = [`${both.length} of ${left.length} items are on both lists, ${places} of them at other places.`];
  const [from, to] = [left.indexOf(most.item) + 1, ranks.get(most.item)];
  if (most.by) words.push(`${nameOf(most.item)} moves most: from ${from} to ${to}.`);
  if (popular) words.push(`${name} knows nothing of this history: its list is what most people have.`);
  else if (unknown.length) words.push(`${name} does not know ${some(unknown.map(nameOf))}.`);
  return words.join(" ");
}

/** Points at an item in both lists, and at the line between. */
function highlight(home) {
  const point = (event) => {
    const of = event.type === "pointerleave" ? undefined : event.target.closest("[data-of]")?.dataset.of;
    home.classList.toggle("pointed", of !== undefined);
    for (const one of home.querySelectorAll("[data-of]")) one.classList.toggle("lit", one.dataset.of === of);
  };
  for (const kind of ["pointerover", "pointerleave", "focusin", "focusout"]) home.addEventListener(kind, point);
}
