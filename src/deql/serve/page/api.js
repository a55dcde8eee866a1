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

let expected = null;
let changed = () => {};

/** From now on all answers must be those of the model with this checksum; `otherwise()` is called once they are not. */
export function expect(checksum, otherwise) {
  expected = checksum;
  changed = otherwise;
}

/** Asks for JSON: GET, or POST if there is a body. Resolves to the answer and the milliseconds it took.
 *
 * What another model answered is never passed on. Nor is a refusal, which may only mean that the question was meant for
 * the model before, until it is known that the server still has the model that is expected. */
export async function ask(path, body) {
  let got;
  try {
    got = await question(path, body);
  } catch (refusal) {
    if (!refusal.passing) await verify();
    throw refusal;
  }
  if (expected === null || (got.answer.checksum ?? expected) === expected) return got;
  await verify();
  throw new Refusal(503, "between_models", "The server is changing its model.");
}

/** Asks what model there is now. If it is another one, nothing that was asked of this one is answered any more. */
async function verify() {
  if (expected === null) return;
  const now = await question("model").then(({ answer }) => answer.checksum, () => expected);
  if (now === expected) return;
  changed();
  await new Promise(() => {});
}

async function question(path, body) {
  const begin = performance.now();
  const options = { signal: AbortSignal.timeout(20_000) };
  if (body !== undefined) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = write(body);
  }
  let response;
  let answer;
  try {
    response = await fetch(addressOf(path), options);
    answer = parse(await response.text());
  } catch (cause) {
    if (response) throw new Refusal(response.status, "no_json", `The server answered ${response.status}, not in JSON.`);
    throw new Refusal(0, "unreachable", "The server does not answer.");
  }
  if (!response.ok) {
    const { code = "unknown", message = `The server answered ${response.status}.` } = answer?.error ?? {};
    throw new Refusal(response.status, code, message);
  }
  return { answer, ms: performance.now() - begin };
}

/** A path with its query; what is null or undefined is left out. */
export function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** The path of something of one item; an id may hold any character, even half of one. */
export const ofItem = (item, what) => `items/${encodeURIComponent(String(item).toWellFormed())}/${what}`;

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
