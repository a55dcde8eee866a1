/** The page: one state, and the panels that follow it. */

import { ago } from "./ago.js";
import { ask, latest, use, withQuery } from "./api.js";
import { calm, trouble } from "./banner.js";
import { beside, choice } from "./beside.js";
import { curves, histogram } from "./charts.js";
import { chips, keepFitting } from "./chips.js";
import { byId, el, setText } from "./dom.js";
import { graph } from "./graph.js";
import { lengths, list } from "./list.js";
import { colour, learn, many, nameOf, short, some } from "./names.js";
import { sliders } from "./rule.js";
import { scaleTo } from "./scale.js";
import { search } from "./search.js";
import { OWN, begin, change, current, onChange, overrides, write } from "./state.js";

const COMPARED = 200;
// Reasons that are told one by one; the others of a long history come as their sum.
const REASONS = 40;
const SILENT = new Set(["engine", "dtype", "progress", "precision", "arithmetic", "solver", "prior"]);

/** The model's name, parameters and data, in one line. */
function introduce(model, models) {
  const told = ([name, value]) => !SILENT.has(name) && ![null, 0, false].includes(value);
  const said = ([name, value]) => `${name} ${typeof value === "number" ? short(value) : value}`;
  const words = Object.entries(model.parameters).filter(told).map(said);
  if (model.prior) words.push(model.prior);
  const data = ["user", "item", "interaction"].map((noun) => many(model.data[`${noun}s`], noun)).join(", ");
  const updated = model.updated ? [", updated ", ago(new Date(model.updated))] : [];
  const about = el("span", { class: "data" }, ` ${data}`, ...updated);
  const pick = (name) => change({ model: name, beside: null, ...OWN });
  const kind = models.length > 1 ? choice(models, model.name, "Model", pick) : el("b", {}, model.model);
  byId("model").replaceChildren(kind, ` ${words.join(" · ")}`, about);
  setText(byId("about"), model.note);
  const loaded = new Date(model.loaded).toLocaleString();
  setText(byId("foot"), `deql ${model.version} · model ${model.checksum.slice(0, 12)} · loaded ${loaded}`);
}

function start(model, curve, models) {
  const rule = model.rule && { ...model.rule, b: Number.isFinite(model.rule.b) ? model.rule.b : Infinity };
  let unknown = [];
  let own = { key: null, ranks: new Map(), known: 0 };
  introduce(model, models);
  learn(model.example);
  const example = model.example.map(({ item }) => item);
  begin(example, innerWidth < 640 ? 10 : 20, { integers: model.data.ids === "integers", rule });

  const top = Math.ceil(Math.max(4, ...[rule?.b, ...(curve?.b ?? [])].filter(Number.isFinite)));
  const scale = scaleTo(top);
  const drawRule = sliders(rule, scale, model.parameters);
  const markCurve = rule && curve ? curves(curve, scale, rule, model.parameters) : () => {};
  const drawDiagonal = histogram();
  const drawK = lengths(model.limits.k);
  const failed = (error) => {
    byId("list").setAttribute("aria-busy", "false");
    trouble(error, () => follow(current()));
  };
  const neighbours = graph(failed);
  const { draw, drawOwn } = list(neighbours.open);
  const drawBeside = beside(models, model, model.limits.k, { open: neighbours.open, failed });
  search(failed);
  keepFitting();

  const refresh = latest(async (stale, state) => {
    try {
      const histories = [state.history];
      const { limits } = model;
      const k = Math.min(state.k, limits.k, limits.reasons);
      const explain = Math.max(1, Math.min(REASONS, state.history.length, Math.floor(limits.reasons / k)));
      const { answer, ms } = await ask("v1/recommend", { histories, k, explain, ...overrides(state) });
      const [result] = answer.results;
      show(state, result, ms);
      await compare(state);
      calm();
    } catch (error) {
      failed(error);
    }
    if (!stale()) byId("list").setAttribute("aria-busy", "false");
  });

  function show(state, result, ms) {
    // Squares: one long piece is seen better than many short ones.
    const weights = new Map();
    for (const { because = [] } of result.recommendations)
      for (const { item, value } of because) weights.set(item, (weights.get(item) ?? 0) + value ** 2);
    learn(result.recommendations);
    for (const { because = [] } of result.recommendations) learn(because);
    colour(state.history, weights);
    unknown = result.unknown;
    draw(result);
    chips(current().history, unknown);
    setText(byId("list-heading"), result.from_popularity ? "What most people have" : "Recommendations");
    const took = `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
    byId("answered").replaceChildren(el("span", {}, "answered in "), took);
    const note = byId("note");
    const notes = [];
    if (unknown.length) notes.push(`The model does not know ${some(unknown.map(nameOf))}.`);
    if (!result.recommendations.length) notes.push("The history has every item there is: nothing is left to recommend.");
    note.hidden = !notes.length;
    setText(note, notes.join(" "));
    // The list is what people look at: the other panels ask once it is there.
    centre(state, result);
    diagonal(state);
    drawBeside(state, result.recommendations);
  }

  /** The neighbourhood that was asked for, else that of the first item there is. */
  function centre(state, result) {
    const first = state.history.find((item) => !result.unknown.includes(item)) ?? result.recommendations[0]?.item;
    const item = state.centre ?? first;
    if (item !== undefined) neighbours.show(item, state);
  }

  /** Where the model's own rule has each item; asked once for each history. */
  async function compare(state) {
    if (!Object.keys(overrides(state)).length) {
      drawOwn(null);
      return;
    }
    const key = JSON.stringify(state.history.map(String));
    if (own.key !== key) {
      const k = Math.min(COMPARED, model.limits.k);
      const { answer } = await ask("v1/recommend", { histories: [state.history], k });
      own = { key, known: k, ranks: new Map(answer.results[0].recommendations.map(({ item }, at) => [item, at + 1])) };
    }
    drawOwn(own.ranks, own.known);
  }

  const diagonal = latest(async (stale, state) => {
    try {
      const { answer } = await ask(withQuery("v1/model/diagonal", overrides(state)));
      byId("diagonal-card").hidden = false;
      drawDiagonal(answer);
    } catch (error) {
      // A model without weights has no diagonal: no card, no complaint.
      if (error.passing !== false) failed(error);
    }
  });

  /** The rule of a state, as the API names its parts; `bound` if it is the model’s own ξ rather than a b. */
  const ruleOf = (state) => ({
    ...rule, ...overrides(state), bound: "xi" in model.parameters && state.b === null && state.zero === null,
  });

  function follow(state) {
    if ((models.find(({ name }) => name === state.model) ?? models[0]).name !== model.name) {
      startAgain();
      return;
    }
    drawRule(state);
    drawK(state.k);
    markCurve(ruleOf(state));
    chips(state.history, unknown);
    byId("list").setAttribute("aria-busy", "true");
    refresh(state);
  }

  onChange(follow);
  follow(current());
}

/** Another model is served: nothing on the page may outlive the one it was made for. The address keeps the view. */
function startAgain() {
  write();
  location.reload();
}

/** The model, and its curve if it has one, however long the server takes to come. */
async function load() {
  try {
    const { answer: { models } } = await ask("v1/models");
    const asked = new URLSearchParams(location.hash.slice(1)).get("model");
    const { name, curve } = models.find((one) => one.name === asked) ?? models[0];
    use(models, name, startAgain);
    const { answer: model } = await ask("v1/model");
    const measured = curve ? (await ask("v1/model/curve")).answer : null;
    calm();
    start(model, measured, models);
  } catch (error) {
    trouble(error, load);
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("recommendations").focus();
});
load();
