/** What b is, told with three items of the history: which guess costs how much, at the b of the slider. */

import { byId, el, setText, still } from "./dom.js";
import { nameOf, short } from "./names.js";

// Made up, and easy to check in one's head: how sure a model could be of an item that is there.
const GUESSES = [0.5, 0.8, 0.9];
const NAMELESS = ["one item", "another", "a third"];

/** Wires the button that opens the panel, for a model with this dropout; returns `draw(b, history)`. */
export function explainB(button, dropout) {
  const panel = byId("what");
  let last = null;
  const draw = (b, history) => {
    last = [b, history];
    if (!panel.hidden) drawCosts(b, history);
  };
  const none = "some items may be dropped (for this model none were)";
  setText(byId("hid"), dropout ? `${short(100 * dropout)} % of the items were dropped` : none);
  button.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (panel.hidden) return;
    draw(...last);
    panel.scrollIntoView({ block: "nearest", behavior: still() ? "auto" : "smooth" });
  });
  return draw;
}

function drawCosts(b, history) {
  // An infinite b stands for a = 0: what was dropped costs nothing.
  const [dropped, kept] = Number.isFinite(b) ? [1, b * b] : [0, 1];
  const times = Number.isFinite(b) ? ["", `${short(b)}² × `] : ["0 × ", ""];
  const costs = GUESSES.map((guess, at) => (1 - guess) ** 2 * (at ? kept : dropped));
  byId("costs").replaceChildren(...GUESSES.map((guess, at) =>
    el("tr", { class: at ? null : "dropped" },
      el("th", { scope: "row" }, el("bdi", {}, at in history ? nameOf(history[at]) : NAMELESS[at])),
      el("td", {}, at ? "kept" : "dropped"), el("td", {}, guess.toFixed(1)),
      el("td", {}, `${times[Math.min(at, 1)]}${(1 - guess).toFixed(1)}² = ${short(costs[at].toPrecision(2))}`))));
  const share = Math.round((100 * (costs[1] + costs[2])) / (costs[0] + costs[1] + costs[2]));
  const at = Number.isFinite(b) ? short(b) : "∞";
  setText(byId("share"), `At b = ${at} the two that were kept make up ${share} % of the cost.`);
}
