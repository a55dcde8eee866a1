/** The neighbourhood of an item: who speaks for whom, how much, and who against. */

import { ask, latest, ofItem, withQuery } from "./api.js";
import { byId, cut, el, onWidth, setText, still, svg } from "./dom.js";
import { curve, loop, placed, points } from "./layout.js";
import { had, learn, many, nameOf, signed } from "./names.js";
import { change, overrides } from "./state.js";

const FONT = "12.5px system-ui, sans-serif";

/** Builds the panel; `failed` hears of refusals. Returns `show(centre, state)`. */
export function graph(failed) {
  const home = byId("graph");
  const back = byId("graph-back");
  const toggle = byId("graph-table");
  const trail = [];
  let shown = null;
  let held = new Map();
  let width = 0;

  const show = latest(async (stale, centre, state) => {
    try {
      const k = width < 420 ? 10 : 12;
      const { answer } = await ask(withQuery(ofItem(centre, "neighbours"), { k, ...overrides(state) }));
      learn(answer.nodes);
      if (shown?.item !== answer.item) held = new Map();
      shown = answer;
      draw();
    } catch (error) {
      if (error.passing !== false) failed(error);
      else refused(centre, error.message);
    }
  });

  /** An item that the model does not know, or a model without weights: said here, the rest of the page is well. */
  function refused(centre, message) {
    shown = null;
    home.replaceChildren(el("p", { class: "says" }, message));
    byId("graph-heading").replaceChildren("Neighbourhood of ", el("bdi", {}, nameOf(centre)));
    setText(byId("graph-says"), "");
  }

  onWidth(home, (now) => {
    width = now;
    if (shown) draw();
  });
  toggle.addEventListener("click", () => {
    toggle.setAttribute("aria-pressed", String(toggle.getAttribute("aria-pressed") !== "true"));
    if (shown) draw();
  });
  back.addEventListener("click", () => {
    change({ centre: trail.pop() });
    if (back.hidden) byId("graph-heading").parentElement.parentElement.focus();
  });

  function go(item) {
    if (item === shown.item) return;
    trail.push(shown.item);
    change({ centre: item });
  }

  function draw() {
    while (trail.at(-1) === shown.item) trail.pop();
    back.hidden = !trail.length;
    const heading = byId("graph-heading");
    heading.replaceChildren("Neighbourhood of ", el("bdi", {}, nameOf(shown.item)));
    held = placed(shown.item, shown.nodes, shown.edges, held);
    const asTable = toggle.getAttribute("aria-pressed") === "true";
    const focus = home.contains(document.activeElement);
    home.replaceChildren(asTable ? table(shown, go) : picture(shown, held, width || 480, go));
    // What was pressed is gone: the keyboard goes on at the new centre.
    if (focus) (home.querySelector(".node.centre") ?? home.querySelector("button"))?.focus();
    says(shown, shown.item);
  }

  return {
    show,
    /** Follows a name from elsewhere on the page, and brings the graph into sight. */
    open(item) {
      if (shown && item !== shown.item) trail.push(shown.item);
      change({ centre: item });
      const panel = byId("neighbourhood");
      const { top, bottom } = panel.getBoundingClientRect();
      const seen = top >= 0 && Math.min(bottom, top + 320) <= innerHeight;
      if (!seen) panel.scrollIntoView({ block: "start", behavior: still() ? "auto" : "smooth" });
    },
  };
}

/** Says the weights between a node and the centre. */
function says({ item: centre, nodes, edges }, item) {
  const home = byId("graph-says");
  const node = nodes.find((one) => one.item === item);
  const between = (from, to) => edges.find((edge) => edge.from === from && edge.to === to)?.weight;
  if (item === centre) {
    setText(home, `${had(node.count)}; on the diagonal ${signed(node.self)}.`);
    return;
  }
  const line = (from, to) => {
    const weight = between(from, to);
    return weight === undefined ? [] : [`${nameOf(from)} → ${nameOf(to)} ${signed(weight)}`];
  };
  setText(home, [...line(centre, item), ...line(item, centre)].join("; "));
}

function picture(shown, places, width, go) {
  const { found, height } = points(shown.item, places, width);
  const middle = found.get(shown.item);
  const counts = shown.nodes.map(({ count }) => count);
  for (const { item, count } of shown.nodes)
    found.get(item).r = item === shown.item ? 11 : 4 + 5 * Math.sqrt(count / Math.max(1, ...counts));
  const largest = Math.max(...shown.edges.map(({ weight }) => Math.abs(weight)), 1e-12);
  const line = (d, weight, kind, names) => {
    const strength = Math.min(1, Math.abs(weight) / largest);
    const path = svg("path", { d, class: `edge ${weight < 0 ? "against" : "for"} ${kind}`,
      "marker-end": `url(#arrow-${weight < 0 ? "against" : "for"})`, ...names });
    path.style.strokeWidth = (0.7 + 4.3 * strength).toFixed(2);
    path.style.setProperty("--strength", strength.toFixed(3));
    return path;
  };
  // The weak are drawn first, the strong over them.
  const edges = byStrength(shown.edges).reverse().map(({ from, to, weight }) => {
    const inner = from !== shown.item && to !== shown.item;
    return line(curve(found.get(from), found.get(to), inner, middle), weight, inner ? "inner" : "spoke",
      { "data-from": String(from), "data-to": String(to), "data-weight": weight });
  });
  const own = shown.nodes[0].self;
  const itself = String(shown.item);
  if (own) edges.push(line(loop(middle), own, "self", { "data-from": itself, "data-to": itself }));
  const nodes = shown.nodes.map((node) => drawNode(shown, node, found.get(node.item), go));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": `Graph of ${nodes.length} items around ${nameOf(shown.item)}` },
    svg("defs", {}, arrow("for"), arrow("against")), svg("g", {}, ...edges), svg("g", {}, ...nodes));
  const point = (event) => {
    const item = event.type === "pointerleave" ? null : event.target.closest?.(".node")?.dataset.item ?? null;
    highlight(drawing, shown, item);
  };
  for (const kind of ["pointerover", "pointerleave", "focusin", "focusout"]) drawing.addEventListener(kind, point);
  return drawing;
}

function highlight(drawing, shown, name) {
  const node = shown.nodes.find(({ item }) => String(item) === name) ?? shown.nodes[0];
  drawing.classList.toggle("pointed", node.item !== shown.item);
  for (const path of drawing.querySelectorAll(".edge"))
    path.classList.toggle("lit", path.dataset.from === String(node.item) || path.dataset.to === String(node.item));
  says(shown, node.item);
}

function drawNode(shown, { item, count }, { x, y, r, side, room }, go) {
  const name = nameOf(item);
  const centre = side === 0;
  const label = svg("text", {
    x: centre ? x : x + side * (r + 6), y: centre ? y + r + 17 : y + 4.5,
    "text-anchor": centre ? "middle" : side > 0 ? "start" : "end",
  }, cut(name, room, centre ? `600 ${FONT}` : FONT));
  const edge = (from, to) => shown.edges.find((one) => one.from === from && one.to === to);
  const [out, into] = [edge(shown.item, item), edge(item, shown.item)];
  const weights = [];
  if (out) weights.push(`${signed(out.weight)} from the centre`);
  if (into) weights.push(`${signed(into.weight)} to it`);
  const spoken = centre ? `${name}, the centre, ${many(count, "user")}` : `${name}: ${weights.join(", ")}`;
  const press = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    go(item);
  };
  return svg("g", { class: centre ? "node centre" : "node", role: "button", tabindex: 0, "aria-label": spoken,
    "data-item": String(item), click: press, keydown: press },
    svg("title", {}, name), svg("circle", { class: "touch", cx: x, cy: y, r: 20 }),
    svg("circle", { class: "disc", cx: x, cy: y, r }), label);
}

const byStrength = (edges) => [...edges].sort((one, other) => Math.abs(other.weight) - Math.abs(one.weight));

const arrow = (kind) =>
  svg("marker", { id: `arrow-${kind}`, class: `arrow ${kind}`, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8,
    markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 .8 7.5 4 0 7.2z" }));

function table({ item: centre, edges }, go) {
  const name = (item) => item === centre ? el("bdi", {}, nameOf(item))
    : el("button", { type: "button", class: "name", click: () => go(item) }, el("bdi", {}, nameOf(item)));
  const rows = byStrength(edges).map(({ from, to, weight }) =>
    el("tr", {}, el("td", {}, name(from)), el("td", {}, name(to)),
      el("td", { "data-value": weight }, signed(weight, 4))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Edges as a table" },
    el("table", { class: "edges" },
      el("thead", {}, el("tr", {}, ...["from", "to", "weight"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...rows)));
}
