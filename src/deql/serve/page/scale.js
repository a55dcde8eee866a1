/** The one scale of b that slider and curve share: fine and even up to 2, where rankings change, coarse beyond. */

const FINE = 2;
const FINE_STEPS = 200;
const COARSE_STEPS = 40;

/** How many steps the scale has. */
export const STEPS = FINE_STEPS + COARSE_STEPS;

/** A scale from 0 to `top`, 4 unless the model or its curve goes further. */
export function scaleTo(top) {
  const coarse = (top - FINE) / COARSE_STEPS;
  return {
    top,
    /** The b of a step. */
    value: (step) =>
      Number((step <= FINE_STEPS ? (step * FINE) / FINE_STEPS : FINE + (step - FINE_STEPS) * coarse).toPrecision(6)),
    /** The step of a b, not rounded. */
    step: (b) => (b <= FINE ? (b * FINE_STEPS) / FINE : Math.min(STEPS, FINE_STEPS + (b - FINE) / coarse)),
    /** Where a b is on the scale, from 0 to 1. */
    place(b) {
      return this.step(b) / STEPS;
    },
  };
}
