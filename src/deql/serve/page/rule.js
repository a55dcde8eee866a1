/** The sliders: b, the popularity power, a prior's weight and the diagonal, on the same P. */

import { byId, el, setText } from "./dom.js";
import { short } from "./names.js";
import { STEPS } from "./scale.js";
import { OWN, change } from "./state.js";
import { explainB } from "./what.js";

const POWERS = [-0.5, 1];
const WEIGHTS = [0, 2];

/** Builds the controls of a model with the rule `own` and these parameters; returns what draws a state on them. */
export function sliders(own, scale, { dropout = 0, xi = null }) {
  const home = byId("rule");
  if (own === null) {
    home.classList.add("fixed");
    const why = "This model is not one inverse and two vectors: its weights are fixed, so b is no slider here.";
    home.append(el("p", {}, why));
    setText(byId("lead"), "Say what somebody has: the model recommends what goes with it, and shows why.");
    return () => {};
  }
  const b = slider("b", "b / a", 0, STEPS, 1, () => change({ b: null }));
  const marks = el("div", { class: "marks", "aria-hidden": "true" });
  for (const [at, text] of [[0, "0"], [0.5, "½"], [1, "b = a"], [2, "2"], [scale.top, short(scale.top)]])
    marks.append(mark(scale.place(at), text, at === 1 ? "tick even" : "tick"));
  if (Number.isFinite(own.b)) marks.append(mark(scale.place(own.b), "", "own"));
  const says = el("p", { class: "meaning", id: "b-says" });
  b.input.setAttribute("aria-describedby", "b-says");
  const asks = { type: "button", class: "asks", "aria-expanded": "false", "aria-controls": "what" };
  const what = el("button", asks, "what is b?");
  b.naming.append(what);
  b.box.append(marks, says);
  const drawWhat = explainB(what, dropout);
  const ownStep = Math.round(scale.step(own.b));
  b.input.addEventListener("input", () => {
    const step = Number(b.input.value);
    change({ b: step === ownStep ? null : scale.value(step) });
  });

  const alpha = moves("alpha", "popularity power α", own.popularity_power, POWERS, [[0, "popular"], [1, "rare"]]);
  const weight = own.prior_weight;
  const prior = weight === undefined
    ? null : moves("prior", "prior’s weight", weight, WEIGHTS, [[1, short(Math.max(WEIGHTS[1], weight))]]);
  if (prior) home.classList.add("with-prior");

  const zero = el("input", { type: "checkbox", id: "zero", role: "switch" });
  zero.addEventListener("change", () => change({ zero: zero.checked === own.zero_diagonal ? null : zero.checked }));
  const title = "Back to the model’s own rule";
  const reset = el("button", { type: "button", class: "quiet", id: "reset", title }, "reset");
  reset.addEventListener("click", () => {
    change(OWN);
    b.input.focus();
  });
  const label = el("label", { for: "zero" }, zero, el("span", {}, "zero diagonal"));
  home.append(b.box, alpha.box, ...(prior ? [prior.box] : []), el("div", { class: "control switch" }, label, reset));

  return (state) => {
    const value = state.b ?? own.b;
    b.set(Math.round(scale.step(value)), Number.isFinite(value) ? short(value) : "∞", state.b === null);
    const diagonal = state.zero ?? own.zero_diagonal;
    const bound = xi !== null && state.b === null && state.zero === null;
    const words = meaning(value, diagonal, dropout);
    setText(says, bound ? bounded(xi) : xi === null ? words : `ξ = ${short(xi)} is let go: ${words}`);
    b.box.classList.toggle("idle", !bound && idle(value, diagonal, dropout));
    drawWhat(value, state.history);
    alpha.draw(state);
    prior?.draw(state);
    zero.checked = diagonal;
    reset.disabled = Object.keys(OWN).every((name) => state[name] === null);
  };
}

/** Whether other values of b give the same model. */
const idle = (b, zero, dropout) => zero || (dropout === 0 && b > 0);

/** What the model is that has ξ, until b or the switch takes its place. */
const bounded = (xi) => `no item speaks for itself more than ξ = ${short(xi)}; another b lets go of ξ`;

/** What a value of b/a means, in the paper's terms. */
function meaning(b, zero, dropout) {
  if (zero) return "with a zero diagonal every b gives the same model";
  if (idle(b, zero, dropout)) return "nothing was dropped, so every b above 0 gives the same model";
  if (dropout === 0) return "EASE: nothing was dropped, and an item may not speak for itself";
  if (b === 0) return "EDLAE: only what was dropped must be found again";
  if (b < 1) return "what was dropped counts more than what was kept";
  if (b === 1) return "DLAE: dropped and kept count alike";
  return "what was kept counts more than what was dropped";
}

function slider(id, name, min, max, step, home) {
  const input = el("input", { type: "range", id, min, max, step, dblclick: home });
  const value = el("output", { for: id, class: "value" });
  const naming = el("div", { class: "naming" }, el("label", { for: id }, name), value);
  const box = el("div", { class: `control ${id}` }, naming, input);
  return {
    input,
    naming,
    box,
    set(position, text, own) {
      if (Number(input.value) !== position) input.value = position;
      input.style.setProperty("--at", (position - min) / (max - min));
      setText(value, text);
      value.classList.toggle("ours", own);
      input.setAttribute("aria-valuetext", own ? `${text}, the model’s own` : text);
    },
  };
}

/** A slider of hundredths in this range, or as far as the model's own value; `ends` are words at its two ends. */
function moves(name, said, own, [least, most], ends) {
  const low = Math.min(least, own);
  const high = Math.max(most, own);
  const made = slider(name, said, low, high, 0.01, () => change({ [name]: null }));
  const place = (value) => (value - low) / (high - low);
  const marks = el("div", { class: "marks", "aria-hidden": "true" }, mark(place(0), "0", "tick even"));
  for (const [at, text] of ends) marks.append(mark(at, text, at ? "tick last" : "tick first"));
  marks.append(mark(place(own), "", "own"));
  made.box.append(marks);
  made.input.addEventListener("input", () => {
    const value = Number(made.input.value);
    change({ [name]: Math.abs(value - own) < 0.005 ? null : value });
  });
  const draw = (state) => {
    const value = state[name] ?? own;
    made.set(value, value.toFixed(2).replace("-", "−"), state[name] === null);
  };
  return { box: made.box, draw };
}

function mark(place, text, kind) {
  const element = el("span", { class: kind }, text);
  element.style.setProperty("--at", place);
  return element;
}
