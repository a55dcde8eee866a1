/** Rows that glide from where they were to where they are. */

import { still } from "./dom.js";

const MOVE = { duration: 380, easing: "cubic-bezier(.2, .8, .2, 1)" };

/** Lets `arrange` put the children in order, then plays the way there: each starts where the eye last saw it. */
export function glide(parent, arrange) {
  if (still() || document.hidden) {
    arrange();
    return;
  }
  const before = new Map([...parent.children].map((child) => [child, child.getBoundingClientRect().top]));
  for (const child of before.keys()) for (const running of child.getAnimations()) running.cancel();
  arrange();
  const after = [...parent.children].map((child) => [child, child.getBoundingClientRect().top]);
  for (const [child, top] of after) {
    const from = before.get(child);
    if (from === undefined) child.animate([{ opacity: 0, transform: "translateY(10px)" }, {}], MOVE);
    else if (Math.abs(from - top) > 0.5) {
      // Those on their way up pass over the others: they are what one looks for.
      const above = from > top ? 2 : 1;
      const there = { transform: `translateY(${from - top}px)`, zIndex: above };
      child.animate([there, { transform: "none", zIndex: above }], MOVE);
    }
  }
}
