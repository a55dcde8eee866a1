/** Elements without markup in strings: whatever an item is called, it stays text. */

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; functions become listeners, strings text. */
export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** The same for SVG. */
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes = {}, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets text only where it differs, so that nothing is painted or read aloud for nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Calls `draw(width)` now and whenever the element gets another width. */
export function onWidth(element, draw) {
  let known = 0;
  new ResizeObserver(() => {
    const width = Math.floor(element.clientWidth);
    if (width && width !== known) draw((known = width));
  }).observe(element);
}

const measure = document.createElement("canvas").getContext("2d");

/** A name cut with … to the width it may take, by whole characters. */
export function cut(name, width, font) {
  measure.font = font;
  if (measure.measureText(name).width <= width) return name;
  const letters = Array.from(name);
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const half = Math.ceil((low + high) / 2);
    if (measure.measureText(`${letters.slice(0, half).join("")}…`).width <= width) low = half;
    else high = half - 1;
  }
  return `${letters.slice(0, low).join("")}…`;
}

/** Whether the person asked for little motion. */
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
