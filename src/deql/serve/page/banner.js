/** Trouble, said calmly in one place, and gone as soon as it is over. */

import { Refusal, ask } from "./api.js";
import { byId, setText } from "./dom.js";

const PAUSE = 1500;
let waiting = false;

/** What a person can do about a refusal, in one sentence. */
function inWords(refusal) {
  if (refusal.status === 0) return "The server does not answer. The page goes on by itself when it is back.";
  if (refusal.status === 401) return "The server asks for its token: reload the page to give it.";
  if (refusal.status >= 500) return `${refusal.message} Trying again …`;
  return refusal.message;
}

/** Says what went wrong. If it may pass, waits until the server answers again and calls `recovered(model)`. */
export async function trouble(error, recovered) {
  if (!(error instanceof Refusal)) throw error;
  const banner = byId("banner");
  setText(banner, inWords(error));
  banner.hidden = false;
  if (!error.passing || waiting) return;
  waiting = true;
  let model = null;
  while (model === null) {
    await new Promise((done) => setTimeout(done, PAUSE));
    try {
      model = (await ask("v1/model")).answer;
    } catch (again) {
      if (again instanceof Refusal) setText(banner, inWords(again));
      else throw again;
    }
  }
  waiting = false;
  calm();
  recovered(model);
}

/** Takes the banner away, unless it speaks of a server that is still away. */
export function calm() {
  if (!waiting) byId("banner").hidden = true;
}
