/** The API's reference, drawn from /openapi.json; every example can be sent. */

import { addressOf, ask, parse, write } from "./api.js";
import { calm, trouble } from "./banner.js";
import { byId, el, setText } from "./dom.js";
import { inOurWords, kind, pretty, resolved, sample } from "./sample.js";

const LONGEST = 20_000;
/** Where a path of the description is on this server. */
const here = (path) => addressOf(path.replace(/^\/*/, "./"));
const anchor = (verb, path) => `${verb}-${path.replace(/^\/v\d+/, "").replace(/[^a-z]+/gi, "-").replace(/^-|-$/g, "")}`;

/** Text in which `…` is code. */
function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

function draw(spec, model) {
  byId("about").replaceChildren(...spec.info.description.split(/\n\n+/).map((text) => el("p", {}, ...prose(text))));
  const groups = byTag(spec.paths);
  byId("contents").replaceChildren(...[...groups].flatMap(([tag, operations]) => [
    el("h2", {}, tag),
    ...operations.map(({ verb, path }) => el("a", { href: `#${anchor(verb, path)}` }, ...title(verb, path))),
  ]), el("h2", {}, "everywhere"), el("a", { href: "#errors" }, "Errors"));
  byId("operations").replaceChildren(...[...groups.values()].flat().map((one) => operation(spec, model, one)));
  setText(byId("foot"), `deql ${spec.info.version} · OpenAPI ${spec.openapi}`);
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

/** The operations of each tag, in the order of the description. */
function byTag(paths) {
  const groups = new Map();
  for (const [path, verbs] of Object.entries(paths)) {
    for (const [verb, about] of Object.entries(verbs)) {
      const tag = about.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), { verb, path, about }]);
    }
  }
  return groups;
}

const title = (verb, path) => [el("span", { class: "verb" }, verb.toUpperCase()), el("span", { class: "path" }, path)];

function operation(spec, model, { verb, path, about }) {
  const content = about.requestBody?.content?.["application/json"];
  const body = content && inOurWords(content.example ?? sample(spec, content.schema), model);
  const address = exampleAddress(spec, model, path, about.parameters ?? []);
  const id = anchor(verb, path);
  const answer = about.responses?.["200"]?.content?.["application/json"]?.schema;
  const errors = Object.entries(about.responses ?? {}).filter(([status]) => status >= 400);
  const link = ([status, { description: title }]) => [", ", el("a", { href: "#errors", title }, status)];
  return el("section", { class: "operation", id, "aria-labelledby": `${id}-heading` },
    el("h2", { id: `${id}-heading` }, ...title(verb, path)),
    el("p", {}, ...prose(about.description ?? about.summary ?? "")),
    fields(spec, parametersOf(spec, about, content)),
    el("h3", {}, "Request"), copied(curl(verb, address, body)),
    ...(answer ? [el("h3", {}, "Answer"), el("pre", { tabindex: 0 }, pretty(sample(spec, answer)))] : []),
    errors.length ? el("p", { class: "quietly" }, "May also answer ", ...errors.flatMap(link).slice(1), ".") : null,
    attempt(verb, address, body, id));
}

/** Parameters of the address and fields of the body, in one table: those that must be given first. */
function parametersOf(spec, about, content) {
  const ours = (about.parameters ?? []).map((one) => ({ ...one, place: one.in }));
  const { properties = {}, required = [] } = content ? resolved(spec, content.schema) : {};
  const fields = Object.entries(properties).map(([name, schema]) =>
    ({ name, place: "body", required: required.includes(name), description: schema.description, schema }));
  return [...ours, ...fields].sort((one, other) => Boolean(other.required) - Boolean(one.required));
}

function fields(spec, known) {
  if (!known.length) return null;
  const row = ({ name, place, required, description, schema }) => {
    const usual = (schema.default ?? null) === null ? "" : ` Default ${JSON.stringify(schema.default)}.`;
    const type = el("span", { class: "kind" }, ` ${kind(spec, schema)}.${usual}`);
    return el("tr", {},
      el("td", {}, el("code", {}, name), " ", required ? el("span", { class: "must" }, "required") : null),
      el("td", { class: "kind" }, place), el("td", {}, ...prose(description ?? ""), type));
  };
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ...["name", "in", "what it is"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, ...known.map(row))));
}

/** A path with its parameters filled in; of the query only what has an example or must be there. */
function exampleAddress(spec, model, path, parameters) {
  const query = new URLSearchParams();
  let address = path;
  for (const { name, in: place, schema, required } of parameters) {
    const known = name === "item" ? model?.example?.[0]?.item : undefined;
    const value = known ?? sample(spec, schema);
    if (place === "path") address = address.replace(`{${name}}`, encodeURIComponent(String(value).toWellFormed()));
    else if (required || schema.examples) query.set(name, value);
  }
  return String(query) ? `${address}?${query}` : address;
}

/** The same request for a shell; single quotes inside are written as shells want them. */
function curl(verb, address, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const method = verb === "get" || body ? "" : `-X ${verb.toUpperCase()} `;
  const lines = [`curl ${method}${quoted(here(address).href)}`];
  if (body) lines.push("-H 'Content-Type: application/json'", `-d ${quoted(write(body))}`);
  return lines.join(" \\\n  ");
}

function copied(text) {
  const button = el("button", { type: "button", class: "quiet" }, "copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      setText(button, "copied");
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      setText(button, "selected");
    }
    setText(byId("live"), `The command is ${button.textContent}.`);
    setTimeout(() => setText(button, "copy"), 1500);
  });
  return el("div", { class: "copied" }, el("pre", { tabindex: 0 }, text), button);
}

/** A form that sends the example, as it is or changed, and shows what comes back. */
function attempt(verb, address, body, id) {
  const where = el("input", { class: "address", type: "text", id: `${id}-address`, spellcheck: "false" });
  where.value = address;
  const what = body ? el("textarea", { id: `${id}-body`, spellcheck: "false" }) : null;
  if (what) what.value = pretty(body);
  const status = el("p", { class: "status", role: "status" });
  const out = el("pre", { tabindex: 0, hidden: true });
  const form = el("form", {},
    el("label", { for: where.id, class: "unseen" }, "Address"), where,
    ...(what ? [el("label", { for: what.id, class: "unseen" }, "Body"), what] : []),
    el("button", { type: "submit", class: "send" }, "Send"), status, out);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const begin = performance.now();
    try {
      const headers = what ? { "Content-Type": "application/json" } : {};
      const options = { method: verb.toUpperCase(), headers, body: what?.value };
      const response = await fetch(here(where.value), options);
      const text = await response.text();
      status.className = response.ok ? "status" : "status bad";
      status.replaceChildren(el("b", {}, String(response.status)), ` in ${(performance.now() - begin).toFixed(1)} ms`);
      setText(out, readable(text));
      out.hidden = false;
    } catch {
      status.className = "status bad";
      status.replaceChildren(el("b", {}, "The server does not answer."));
      out.hidden = true;
    }
  });
  return el("details", { class: "try" }, el("summary", {}, "Try it"), form);
}

function readable(text) {
  let shown = text;
  try {
    shown = pretty(parse(text));
  } catch {
    // Not all answers are JSON: numbers for Prometheus are lines.
  }
  const more = shown.length - LONGEST;
  return more > 0 ? `${shown.slice(0, LONGEST)}\n… and ${more} characters more` : shown;
}

async function load() {
  try {
    const { answer: spec } = await ask("openapi.json");
    const model = await ask("v1/model").then(({ answer }) => answer, () => null);
    calm();
    draw(spec, model);
  } catch (error) {
    trouble(error, load);
  }
}

load();
