/** Examples out of a description: of schemas in general, and in the words of the model that is served. */

import { write } from "./api.js";

/** A schema with its $ref followed; of alternatives the first that is not null. */
export function resolved(spec, schema) {
  let found = schema;
  while (found?.$ref) found = found.$ref.slice(2).split("/").reduce((at, name) => at?.[name], spec);
  const choices = found?.anyOf ?? found?.oneOf;
  const one = choices?.find((choice) => choice.type !== "null");
  return one ? { ...resolved(spec, one), description: found.description, default: found.default } : found ?? {};
}

/** What a value that fits a schema could look like. */
export function sample(spec, schema, depth = 0) {
  const { type, properties, items, examples, default: usual, enum: values } = resolved(spec, schema);
  const given = examples?.[0] ?? values?.[0] ?? usual;
  if (given !== undefined && given !== null) return given;
  const inside = ([name, inner]) => [name, sample(spec, inner, depth + 1)];
  if (properties) return Object.fromEntries(Object.entries(properties).map(inside));
  if (type === "array") return depth > 8 ? [] : [sample(spec, items ?? {}, depth + 1)];
  return { integer: 1, number: 0.5, boolean: false, string: "…", object: {} }[type] ?? "…";
}

/** A type in words: what it is, and between what it lies. */
export function kind(spec, schema) {
  const choices = (schema.anyOf ?? []).filter((choice) => choice.type !== "null");
  if (choices.length > 1) return choices.map((choice) => kind(spec, choice)).join(" or ");
  const { type, items, minimum, maximum, exclusiveMinimum, maxLength, enum: values } = resolved(spec, schema);
  if (values) return values.map((value) => JSON.stringify(value)).join(" or ");
  const range = [
    minimum !== undefined && `≥ ${minimum}`, exclusiveMinimum !== undefined && `> ${exclusiveMinimum}`,
    maximum !== undefined && `≤ ${maximum}`, maxLength !== undefined && `up to ${maxLength} characters`,
  ].filter(Boolean).join(", ");
  const name = type === "array" ? `list of ${kind(spec, items ?? {})}` : type ?? "any";
  return range ? `${name} ${range}` : name;
}

/** A request's example with items that this model has, so that sending it works. */
export function inOurWords(body, model) {
  const [item, ...others] = model?.example?.map((one) => one.item) ?? [];
  if (item === undefined || typeof body !== "object" || body === null) return body;
  const history = others.length ? others.slice(0, 3) : [item];
  const words = { histories: [history], history, item };
  return Object.fromEntries(Object.entries(body).map(([name, value]) => [name, words[name] ?? value]));
}

/** JSON for people: what fits on a line stands on one. */
export function pretty(value, indent = "") {
  if (typeof value !== "object" || value === null) return write(value);
  const list = Array.isArray(value);
  const [open, close] = list ? "[]" : "{}";
  const inner = `${indent}  `;
  const key = (name) => (list ? "" : `${JSON.stringify(name)}: `);
  const parts = Object.entries(value).map(([name, part]) => key(name) + pretty(part, inner));
  const line = open + parts.join(", ") + close;
  if (indent.length + line.length <= 88 && !line.includes("\n")) return line;
  return `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${indent}${close}`;
}
