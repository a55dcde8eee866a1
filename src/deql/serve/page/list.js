/** The recommendations, kept up with every move of a slider. */

import { byId, el, setText } from "./dom.js";
import { glide } from "./motion.js";
import { nameOf } from "./names.js";
import { drawRow, reach, row } from "./row.js";
import { change, current } from "./state.js";

const REST = 1800;

/** Builds the list; `open(item)` shows a neighbourhood. Returns what draws an answer, and what draws own ranks. */
export function list(open) {
  const home = byId("list");
  const act = { open, add: (item) => change({ history: [...current().history, item] }) };
  const rows = new Map();
  let before = new Map();
  let ranks = new Map();
  let rest = 0;

  light(home);

  function draw({ recommendations: found, from_popularity: popular }) {
    const recommendations = found.map((one) => ({ ...one, popular }));
    const spans = recommendations.map(reach);
    const span = [Math.min(0, ...spans.map(([left]) => left)), Math.max(0, ...spans.map(([, right]) => right))];
    ranks = new Map(recommendations.map(({ item }, at) => [item, at + 1]));
    glide(home, () => {
      for (const [item, made] of rows) {
        if (ranks.has(item)) continue;
        made.element.remove();
        rows.delete(item);
      }
      recommendations.forEach((one, at) => {
        if (!rows.has(one.item)) rows.set(one.item, row(one.item, act));
        const made = rows.get(one.item);
        drawRow(made, one, at, span);
        // A row that is in its place is not moved: moving would take the focus from its buttons.
        if (home.children[at] !== made.element) home.insertBefore(made.element, home.children[at] ?? null);
      });
    });
    badges();
  }

  /** Ranks are told against the last time that all was at rest, so a slow drag adds up. */
  function badges() {
    if (!before.size) before = ranks;
    for (const [item, made] of rows) {
      const was = before.get(item);
      const by = was === undefined ? "new" : was - ranks.get(item);
      made.badge.className = by === "new" ? "badge new" : by > 0 ? "badge up" : by < 0 ? "badge down" : "badge";
      if (by) setText(made.badge, by === "new" ? "new" : `${by > 0 ? "▲" : "▼"}${Math.abs(by)}`);
    }
    clearTimeout(rest);
    rest = setTimeout(() => {
      settle();
      for (const { badge } of rows.values()) badge.className = "badge";
    }, REST);
  }

  function settle() {
    const moved = [...ranks].filter(([item, rank]) => before.get(item) !== rank).length;
    const [first] = ranks.keys();
    if (moved && ranks.size) setText(byId("live"), `${moved} of ${ranks.size} items moved; first is ${nameOf(first)}.`);
    before = ranks;
  }

  /** The rank of each item under the model's own rule; null takes the column away. */
  function drawOwn(own, known) {
    home.classList.toggle("compared", own !== null);
    for (const [item, made] of rows) {
      const rank = own?.get(item);
      setText(made.own, own === null ? "" : rank ? `${rank}` : `>${known}`);
      made.own.title = own === null ? "" : `Rank ${rank ?? `beyond ${known}`} by the model’s own rule`;
      made.own.classList.toggle("same", rank === ranks.get(item));
    }
  }

  return { draw, drawOwn };
}

/** Points at one item of the history everywhere at once: its chip and its piece of every bar. */
function light(home) {
  const tip = byId("tip");
  let pointed = null;
  const lit = (element) => {
    if (element === pointed) return;
    pointed = element;
    document.body.toggleAttribute("data-lit", element !== null);
    // A piece of many has no name of its own, and is lit alone.
    for (const one of element ? document.querySelectorAll(".piece, .chip") : [])
      one.classList.toggle("lit", one === element || (element.dataset.of !== undefined && one.dataset.of === element.dataset.of));
  };
  home.addEventListener("pointermove", (event) => {
    const piece = event.target.closest(".piece");
    tip.hidden = !piece;
    lit(piece);
    if (!piece) return;
    setText(tip, piece.dataset.tip);
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(room, event.clientX + 12))}px`;
    tip.style.top = `${event.clientY + 18}px`;
  });
  home.addEventListener("pointerleave", () => {
    tip.hidden = true;
    lit(null);
  });
  byId("chips").addEventListener("pointerover", (event) => lit(event.target.closest(".chip")));
  byId("chips").addEventListener("pointerleave", () => lit(null));
}

/** The choice of how many to show. */
export function lengths(limit) {
  const choice = byId("k");
  const offer = (k) => choice.append(el("option", { value: k }, String(k)));
  [10, 20, 50, 100].filter((k) => k <= limit).forEach(offer);
  choice.addEventListener("change", () => change({ k: Number(choice.value) }));
  return (k) => {
    if (![...choice.options].some((option) => option.value === String(k))) offer(k);
    choice.value = String(k);
  };
}
