/** Random numbers from a seed: those of `RandomGenerator` in the other languages. */

const SPAN = 1n << 64n;

/**
 * A generator of random numbers (SplitMix64). The same seed gives the same numbers in every language and version. Workflow code
 * gets one from `ctx.randomGenerator()`.
 */
export class RandomGenerator {
  #state: bigint;

  constructor(seed: bigint) {
    if (seed < 0n || seed >= SPAN) throw new RangeError(`a seed has 64 bits, not ${seed}`);
    this.#state = seed;
  }

  /** Draws 64 random bits. */
  bits(): bigint {
    this.#state = BigInt.asUintN(64, this.#state + 0x9e3779b97f4a7c15n);
    let mixed = BigInt.asUintN(64, (this.#state ^ (this.#state >> 30n)) * 0xbf58476d1ce4e5b9n);
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn);
    return mixed ^ (mixed >> 31n);
  }

  /** Draws an integer from `low` up to, but not including, `high`, each with the same probability. */
  integer(low: number, high: number): number {
    if (!Number.isSafeInteger(low) || !Number.isSafeInteger(high) || low >= high) {
      throw new RangeError(`a range of random integers is not empty and has safe integers, not ${low} to ${high}`);
    }
    const size = BigInt(high) - BigInt(low);
    const unfair = SPAN % size;
    let bits = this.bits();
    while (bits < unfair) bits = this.bits();
    return Number(BigInt(low) + (bits % size));
  }

  /** Draws a number from 0 up to, but not including, 1. */
  float(): number {
    return Number(this.bits() >> 11n) / 2 ** 53;
  }

  /** Returns true with this probability: 0 is never, 1 is always. */
  chance(probability: number): boolean {
    if (!(probability >= 0 && probability <= 1)) throw new RangeError(`a probability is between 0 and 1, not ${probability}`);
    return this.float() < probability;
  }

  /** Draws an item, each with the same probability. */
  choice<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError("there is nothing to choose from");
    return items[this.integer(0, items.length)] as T;
  }

  /** Brings the items into a random order, each with the same probability. */
  shuffle<T>(items: T[]): void {
    for (let place = items.length - 1; place > 0; place--) {
      const other = this.integer(0, place + 1);
      [items[place], items[other]] = [items[other] as T, items[place] as T];
    }
  }
}
