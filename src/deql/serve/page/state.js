/** What is looked at: a history, a rule, a length, a centre. Kept in the address, so that a view can be shared. */

import { integer } from "./api.js";

/** A rule as the model has it, which is what `null` means. */
export const OWN = { b: null, alpha: null, zero: null, prior: null };
const state = { history: [], ...OWN, k: 20, centre: null, model: null, beside: null };
const listeners = [];
let readId = String;
let movable = Object.keys(OWN);

/** A copy that nobody changes under the reader's hands. */
export const current = () => ({ ...state });

/** Calls back after every change, with the new state. */
export const onChange = (listener) => listeners.push(listener);

/** Changes some of the state. A change of items or models is a step back and forth in the browser; a slider's is not. */
export function change(patch) {
  const steps = ["history", "centre", "model", "beside"].some((name) => name in patch);
  Object.assign(state, patch);
  tell(steps);
}

/** The overrides of a state, as the API calls them. */
export function overrides({ b, alpha, zero, prior }) {
  const given = {};
  if (b !== null) given.b = b;
  if (alpha !== null) given.popularity_power = alpha;
  if (zero !== null) given.zero_diagonal = zero;
  if (prior !== null) given.prior_weight = prior;
  return given;
}

/** Begins with the address, else with the example; follows the address from then on.
 *
 * `integers` are what ids are; what the model's `rule` does not have, none of it if it is null, is not read from an
 * address that has it. */
export function begin(example, k, { integers, rule }) {
  readId = integers ? integer : String;
  movable = Object.keys(OWN).filter((name) => rule !== null && (name !== "prior" || "prior_weight" in rule));
  const start = () => read(example, k);
  Object.assign(state, start());
  addEventListener("popstate", () => {
    Object.assign(state, OWN, { centre: null }, start());
    for (const listener of listeners) listener(current());
  });
}

/** What an address says, and for what it leaves out what is usual. One that has k says all: no h is no history. */
function read(example, k) {
  const given = new URLSearchParams(location.hash.slice(1));
  // What somebody wrote by hand and the server would refuse is as if it were not there.
  const number = (name, least, most) => {
    const text = given.get(name)?.trim();
    const value = text ? Number(text) : NaN;
    return value >= least && value <= most ? value : null;
  };
  const ids = (name) => given.getAll(name).map(readId).filter((id) => id !== null);
  const rule = {
    b: number("b", 0, 1e6),
    alpha: number("alpha", -10, 10),
    zero: { zero: true, free: false }[given.get("diagonal")] ?? null,
    prior: number("prior", 0, 1e6),
  };
  return {
    ...Object.fromEntries(movable.map((name) => [name, rule[name]])),
    history: given.has("h") || given.has("k") ? [...new Set(ids("h"))] : example,
    k: Math.min(200, Math.max(1, Math.round(number("k", 1, 1e6) ?? k))),
    centre: ids("of")[0] ?? null,
    model: given.get("model"),
    beside: given.get("beside"),
  };
}

/** The state as the part of an address after #. */
export function written({ history, b, alpha, zero, prior, k, centre, model, beside }) {
  const given = new URLSearchParams(history.map((item) => ["h", String(item)]));
  if (b !== null) given.set("b", String(b));
  if (alpha !== null) given.set("alpha", String(alpha));
  if (zero !== null) given.set("diagonal", zero ? "zero" : "free");
  if (prior !== null) given.set("prior", String(prior));
  given.set("k", String(k));
  if (centre !== null) given.set("of", String(centre));
  if (model !== null) given.set("model", model);
  if (beside !== null) given.set("beside", beside);
  return given.toString();
}

let later = 0;
let unwritten = "";

/** Writes what the address does not say yet. */
export function write() {
  clearTimeout(later);
  if (unwritten) history.replaceState(null, "", unwritten);
  unwritten = "";
}

function tell(steps) {
  clearTimeout(later);
  // Browsers refuse addresses that change many times a second, so a slider's is written once it rests.
  if (steps) {
    write();
    history.pushState(null, "", `#${written(state)}`);
  } else {
    unwritten = `#${written(state)}`;
    later = setTimeout(write, 200);
  }
  for (const listener of listeners) listener(current());
}
