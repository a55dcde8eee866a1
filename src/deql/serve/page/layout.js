/** Where the nodes of a neighbourhood go, and how its edges bend. The same graph always looks the same. */

const PITCH = 46;
const MARGIN = 34;

/** Where each neighbour goes: those the centre speaks for to the right, those that speak for it to the left.
 *
 * Rows are evenly apart, so no label ever meets another. `held` says who had which place before: who stays keeps it,
 * so that a slider moves weights and not the picture. */
export function placed(centre, nodes, edges, held) {
  const weight = (from, to) => edges.find((edge) => edge.from === from && edge.to === to)?.weight ?? 0;
  const size = (item) => Math.max(Math.abs(weight(centre, item)), Math.abs(weight(item, centre)));
  const lean = (item) => Math.abs(weight(centre, item)) - Math.abs(weight(item, centre));
  const items = nodes.map(({ item }) => item).filter((item) => item !== centre);
  const free = new Set(items.keys());
  const places = new Map();
  for (const item of items) {
    const place = held.get(item);
    if (free.delete(place)) places.set(item, place);
  }
  const fresh = items.filter((item) => !places.has(item)).sort((one, other) => lean(other) - lean(one));
  // Even places are on the right. Who leans out most takes those first; each side is then ordered by strength.
  const open = [...free].sort((one, other) => (one % 2) - (other % 2) || one - other);
  const right = open.filter((place) => place % 2 === 0).length;
  for (const [side, at] of [[fresh.slice(0, right), 0], [fresh.slice(right), right]])
    side.sort((one, other) => size(other) - size(one)).forEach((item, row) => places.set(item, open[at + row]));
  return places;
}

/** The points of a graph: the centre, and its neighbours on two arcs. */
export function points(centre, places, width) {
  const rows = Math.max(1, Math.ceil(places.size / 2));
  const height = Math.max(200, (rows - 1) * PITCH + 2 * MARGIN);
  const middle = { x: width / 2, y: height / 2 };
  const arc = Math.max(48, Math.min(150, width * 0.25));
  const found = new Map([[centre, { ...middle, side: 0, room: width * 0.42 }]]);
  for (const [item, place] of places) {
    const side = place % 2 ? -1 : 1;
    const count = side > 0 ? Math.ceil(places.size / 2) : Math.floor(places.size / 2);
    const up = (Math.floor(place / 2) - (count - 1) / 2) * PITCH;
    const x = middle.x + side * arc * Math.sqrt(Math.max(0.2, 1 - (up / (height * 0.6)) ** 2));
    found.set(item, { x, y: middle.y + up, side, room: side > 0 ? width - x - 16 : x - 16 });
  }
  return { found, height };
}

/** A curve from one node to another that ends at their rims. Both directions bend to their own right, so they part. */
export function curve(from, to, inner, middle) {
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const length = Math.hypot(dx, dy) || 1;
  const bend = 7 + length * 0.05;
  let x = (from.x + to.x) / 2 - (dy / length) * bend;
  let y = (from.y + to.y) / 2 + (dx / length) * bend;
  if (inner) {
    // Edges among neighbours lean towards the middle, away from the labels.
    x += (middle.x - x) * 0.32;
    y += (middle.y - y) * 0.16;
  }
  const start = rim(from, { x, y }, from.r + 2);
  const end = rim(to, { x, y }, to.r + 4);
  return `M${start} Q${x.toFixed(1)} ${y.toFixed(1)} ${end}`;
}

/** An edge of a node to itself, above it. */
export function loop({ x, y, r }) {
  const top = y - r - 1;
  return `M${x - 5} ${top} C${x - 26} ${top - 34} ${x + 26} ${top - 34} ${x + 6} ${top - 2}`;
}

function rim(node, towards, distance) {
  const dx = towards.x - node.x;
  const dy = towards.y - node.y;
  const length = Math.hypot(dx, dy) || 1;
  return `${(node.x + (dx / length) * distance).toFixed(1)} ${(node.y + (dy / length) * distance).toFixed(1)}`;
}
