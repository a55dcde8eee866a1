/** The model in two pictures: how good each b is, and what its diagonal does. */

import { byId, el, onWidth, setText, svg } from "./dom.js";
import { many, short } from "./names.js";
import { change } from "./state.js";

const HEIGHT = 96;
const PAD = { left: 10, right: 10, top: 10, bottom: 20 };

/** The b curve, a small picture for each metric. Returns `mark(rule)`, which moves with the sliders.
 *
 * It was measured with some parameters, one α and a free diagonal. A zero diagonal gives at every b what b = 0 gives
 * without: the curve lies flat. For all else that differs nobody has measured anything: it fades, and says so. */
export function curves(answer, scale, own, parameters) {
  byId("curve-card").hidden = false;
  const home = byId("curve");
  const order = Object.keys(answer.values).sort((one, other) => (other === answer.metric) - (one === answer.metric));
  const given = { popularity_power: 0, ...answer.parameters };
  let at = { ...own };
  let drawn = [];
  const mark = (rule) => {
    at = rule;
    const why = unmeasured(given, parameters, own, rule, answer.b.includes(0));
    home.classList.toggle("faded", why !== null);
    const usual = rule.zero_diagonal ? "A zero diagonal gives at every b what b = 0 gives. " : "";
    setText(byId("curve-says"), why ?? `${usual}Validation users, a band of one standard error. Click to set b.`);
    for (const one of drawn) one(rule.b, rule.zero_diagonal, why === null);
  };
  onWidth(home, (width) => {
    drawn = [];
    home.replaceChildren(...order.map((metric) => {
      const { figure, move } = curve(metric, answer, scale, own.b, width);
      drawn.push(move);
      return figure;
    }));
    mark(at);
  });
  return mark;
}

/** Why the curve says nothing about a rule; null if it does. */
function unmeasured(given, parameters, own, rule, knowsZero) {
  const far = (one, other) => Math.abs(one - other) > 1e-6 * Math.max(1, Math.abs(one));
  const fitted = (name) => parameters[name] ?? 0;
  const other = ["l2", "dropout", "user_power"].find((name) => name in given && far(given[name], fitted(name)));
  if (other) return `Measured with ${other} ${short(given[other])}: this model, with ${short(fitted(other))}, is another one.`;
  const [there, here] = [given.popularity_power, rule.popularity_power];
  if (far(there, here))
    return `Measured at α = ${short(there)}: how good each b is at α = ${short(here)}, nobody has measured.`;
  if ("prior_weight" in own && far(own.prior_weight, rule.prior_weight))
    return `How good each b is with another weight of the prior than ${short(own.prior_weight)}, nobody has measured.`;
  if (rule.bound) return "Measured without ξ: move b to let go of it.";
  return rule.zero_diagonal && !knowsZero ? "Measured without a zero diagonal, and not at b = 0, which is the same." : null;
}

function curve(metric, { b, values, errors, best }, scale, own, width) {
  const known = b.map((place, at) => ({ b: place, value: values[metric][at], error: errors?.[metric]?.[at] ?? 0 }))
    .filter((point) => Number.isFinite(point.b) && Number.isFinite(point.value)).sort((one, other) => one.b - other.b);
  const low = Math.min(...known.map(({ value, error }) => value - error));
  const high = Math.max(...known.map(({ value, error }) => value + error));
  const x = (place) => PAD.left + scale.place(place) * (width - PAD.left - PAD.right);
  const y = (value) => PAD.top + ((high - value) / (high - low || 1)) * (HEIGHT - PAD.top - PAD.bottom);
  const line = (of) => known.map((point) => `${x(point.b).toFixed(1)} ${y(of(point)).toFixed(1)}`);
  const band = [...line(({ value, error }) => value + error), ...line(({ value, error }) => value - error).reverse()];
  const top = known.find((point) => point.b === best[metric]);
  const needle = svg("line", { class: "needle", y1: PAD.top - 6, y2: HEIGHT - PAD.bottom });
  const bead = svg("circle", { class: "bead", r: 4.5 });
  const flat = between(known, 0);
  const level = svg("line", { class: "level", x1: PAD.left, x2: width - PAD.right, y1: y(flat ?? 0), y2: y(flat ?? 0) });
  const tick = (place, text) => label(x(place), text);
  const said = known.map((point) => `${short(point.b)}: ${point.value.toFixed(4)}`).join(", ");
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, class: "curve", role: "img",
    "aria-label": `${metric} over b: ${said}` },
    axis(width),
    svg("line", { class: "even", x1: x(1), x2: x(1), y1: PAD.top - 6, y2: HEIGHT - PAD.bottom }),
    svg("g", { class: "measured" },
      svg("path", { class: "band", d: `M${band.join("L")}Z` }),
      svg("path", { class: "stroke", d: `M${line(({ value }) => value).join("L")}` }),
      ...known.map((point) => svg("circle", { class: "point", cx: x(point.b), cy: y(point.value), r: 2 })),
      ...(top ? [svg("path", { class: "star", d: star(x(top.b), y(top.value)) })] : [])),
    level, needle, bead, tick(0, "0"), tick(1, "b = a"), tick(2, "2"), tick(scale.top, short(scale.top)));
  drawing.addEventListener("click", (event) => {
    const box = drawing.getBoundingClientRect();
    const place = (event.clientX - box.left - PAD.left) / (width - PAD.left - PAD.right);
    const b = scale.value(Math.round(scale.step(scale.top) * Math.min(1, Math.max(0, place))));
    change({ b: b === own ? null : b });
  });
  const here = el("span", { class: "here" });
  const caption = el("figcaption", {}, el("b", {}, metric), here,
    ...(top ? [el("span", { class: "best" }, `best ${top.value.toFixed(4)} at ${short(top.b)}`)] : []));
  const move = (b, zero, applies) => {
    const value = !applies ? null : zero ? flat : between(known, b);
    drawing.classList.toggle("flat", zero && value !== null);
    needle.style.transform = `translateX(${x(b).toFixed(1)}px)`;
    bead.toggleAttribute("hidden", value === null);
    if (value !== null) bead.style.transform = `translate(${x(b).toFixed(1)}px, ${y(value).toFixed(1)}px)`;
    const measured = zero || known.some((point) => point.b === b);
    const place = zero ? "every b" : short(b);
    setText(here, value === null ? "" : `${measured ? "" : "≈ "}${value.toFixed(4)} at ${place}`);
  };
  return { figure: el("figure", {}, caption, drawing), move };
}

/** The value at b on the straight line between its neighbours; null outside of what was measured. */
function between(known, b) {
  const after = known.findIndex((point) => point.b >= b);
  if (after < 0 || (after === 0 && known[0].b > b)) return null;
  const right = known[after];
  if (right.b === b) return right.value;
  const left = known[after - 1];
  return left.value + ((b - left.b) / (right.b - left.b)) * (right.value - left.value);
}

function star(x, y) {
  const corner = (at) => {
    const radius = at % 2 ? 3 : 7;
    const angle = (Math.PI / 5) * at - Math.PI / 2;
    return `${(x + radius * Math.cos(angle)).toFixed(1)} ${(y + radius * Math.sin(angle)).toFixed(1)}`;
  };
  return `M${Array.from({ length: 10 }, (_, at) => corner(at)).join("L")}Z`;
}

const axis = (width) =>
  svg("line", { class: "axis", x1: PAD.left, x2: width - PAD.right, y1: HEIGHT - PAD.bottom, y2: HEIGHT - PAD.bottom });

const label = (x, text) => svg("text", { class: "tick", x, y: HEIGHT - 5, "text-anchor": "middle" }, text);

/** The histogram of W's diagonal. Returns `draw(answer)`.
 *
 * The axis holds still from 0 to 1, so that what moves is seen. */
export function histogram() {
  const home = byId("diagonal");
  let width = 0;
  let last = null;
  const draw = (answer) => {
    last = answer;
    if (!width) return;
    const low = Math.min(0, answer.least);
    const high = Math.max(1, answer.largest);
    const x = (value) => PAD.left + ((value - low) / (high - low)) * (width - PAD.left - PAD.right);
    const floor = HEIGHT - PAD.bottom;
    const most = Math.max(1, ...answer.counts);
    // A square root lets a tail of few items be seen beside the many.
    const tall = (count) => Math.sqrt(count / most) * (floor - PAD.top);
    const block = (count, at) => {
      const [from, to] = [x(answer.edges[at]), x(answer.edges[at + 1])];
      const size = { width: Math.max(1.5, to - from - 0.5).toFixed(1), height: tall(count).toFixed(1) };
      const place = { x: from.toFixed(1), y: (floor - tall(count)).toFixed(1) };
      return count ? svg("rect", { class: "block", ...place, ...size }) : "";
    };
    const about = (value, digits = 3) => short(value.toPrecision(digits));
    const tick = (value) => label(x(value), about(value, 2));
    const words = `from ${about(answer.least)} to ${about(answer.largest)}, on average ${about(answer.mean)}`;
    home.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img",
      "aria-label": `Histogram of ${many(answer.counts.reduce((sum, count) => sum + count, 0), "item")}: ${words}` },
      ...answer.counts.map(block), axis(width),
      svg("line", { class: "needle", x1: x(answer.mean), x2: x(answer.mean), y1: PAD.top - 6, y2: floor }),
      tick(low), tick((low + high) / 2), tick(high)));
    setText(byId("diagonal-says"), `How much an item speaks for itself: ${words}. Heights by square root. ` +
      "It never ranks what someone does not have yet.");
  };
  onWidth(home, (now) => {
    width = now;
    if (last) draw(last);
  });
  return draw;
}
