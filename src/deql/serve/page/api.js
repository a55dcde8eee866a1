/** Questions to the server, and what it means if it does not answer well. */

/** An answer that is not the one hoped for: `status` 0 means that nobody answered. */
export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether the same question may succeed later, unchanged. */
  get passing() {
    return this.status === 0 || this.status === 401 || this.status >= 500;
  }
}

/** An integer that a double cannot hold; ids are 64 bits long in some shops. */
const LONG = /[[,:\s]-?\d{16,}[\],}\s]/;
const exactly = (key, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? BigInt(context.source)
    : value;
const asIs = (key, value) => (typeof value === "bigint" ? JSON.rawJSON(String(value)) : value);

/** JSON as the server means it: integers to the last digit. */
export const parse = (text) => JSON.parse(text, LONG.test(text) ? exactly : undefined);

/** The same, written. */
export const write = (value) => JSON.stringify(value, asIs);

const home = new URL(".", document.baseURI);
// `fetch` refuses addresses with a token in them; what the page was opened with is sent anyway.
home.username = home.password = "";

/** Where a path of the API is: beside this page, whatever a proxy puts before both. */
export const addressOf = (path) => new URL(path, home);

/** The id that a text names, where ids are integers; null if it names none. */
export function integer(text) {
  if (!/^-?\d{1,19}$/.test(text)) return null;
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}

const expected = new Map();
let primary;
let changed = () => {};

/** From now on answers must be those of these models ({name, checksum}); `otherwise()` is called once they are not.
 *
 * Questions are for the model called `name`, unless they say another. */
export function use(models, name, otherwise) {
  for (const one of models) expected.set(one.name, one.checksum);
  primary = name;
  changed = otherwise;
}

/** Asks for JSON: GET, or POST if there is a body. Resolves to the answer and the milliseconds it took.
 *
 * What another model answered than the one that was meant is never passed on, not even that it refused. */
export async function ask(path, body, model = primary) {
  const wanted = expected.get(model);
  const begin = performance.now();
  const got = await question(path, body, model);
  const ms = performance.now() - begin;
  const doubtful = got.checksum ? got.checksum !== wanted : got.refusal?.passing === false;
  if (wanted !== undefined && doubtful) {
    await verify();
    if (got.checksum) throw new Refusal(503, "between_models", "The server is changing its model.");
  }
  if (got.refusal) throw got.refusal;
  return { answer: got.answer, ms };
}

/** Asks what models there are now. If they are others, nothing that was asked of these is answered any more. */
async function verify() {
  const { answer, refusal } = await question("v1/models");
  const same = ({ name, checksum }) => expected.get(name) === checksum;
  if (refusal || (answer.models.length === expected.size && answer.models.every(same))) return;
  changed();
  await new Promise(() => {});
}

async function question(path, body, model) {
  const options = { signal: AbortSignal.timeout(20_000) };
  const address = addressOf(path);
  if (body !== undefined) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = write({ ...body, model });
  } else if (model !== undefined) address.searchParams.set("model", model);
  let response;
  let answer;
  try {
    response = await fetch(address, options);
    answer = parse(await response.text());
  } catch (cause) {
    const refusal = response
      ? new Refusal(response.status, "no_json", `The server answered ${response.status}, not in JSON.`)
      : new Refusal(0, "unreachable", "The server does not answer.");
    return { refusal };
  }
  const checksum = response.headers.get("X-Model-Checksum");
  if (response.ok) return { answer, checksum };
  const { code = "unknown", message = `The server answered ${response.status}.` } = answer?.error ?? {};
  return { checksum, refusal: new Refusal(response.status, code, message) };
}

/** A path with its query; what is null or undefined is left out. */
export function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** The path of something of one item; an id may hold any character, even half of one. */
export const ofItem = (item, what) => `v1/items/${encodeURIComponent(String(item).toWellFormed())}/${what}`;

/** One question at a time, and only the newest of those that wait.
 *
 * While a slider moves, dozens of states pass per second. Answers come in the order of the states, so an older one
 * never replaces a newer one; `stale()` tells the task that a newer state waits by now. A task that fails is reported,
 * and the next one runs. */
export function latest(task) {
  let running = false;
  let waiting = null;
  return async (...input) => {
    waiting = input;
    if (running) return;
    running = true;
    while (waiting) {
      const now = waiting;
      waiting = null;
      try {
        await task(() => waiting !== null, ...now);
      } catch (fault) {
        reportError(fault);
      }
    }
    running = false;
  };
}
