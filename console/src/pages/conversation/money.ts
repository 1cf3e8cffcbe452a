/** Owns exact sums of money: dollars are decimal texts, and a sum of doubles would show another amount. */

const DIGITS = 12;

function pico(text: string): bigint {
  const match = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  if (!match) return 0n;
  const fraction = (match[3] ?? "").slice(0, DIGITS).padEnd(DIGITS, "0");
  const value = BigInt(match[2]! + fraction);
  return match[1] === "-" ? -value : value;
}

export function addMoney(a: string, b: string): string {
  const sum = pico(a) + pico(b);
  const text = (sum < 0n ? -sum : sum).toString().padStart(DIGITS + 1, "0");
  const fraction = text.slice(-DIGITS).replace(/0+$/, "");
  return `${sum < 0n ? "-" : ""}${text.slice(0, -DIGITS)}${fraction ? `.${fraction}` : ""}`;
}

export function sumMoney(all: Iterable<string | null>): string | null {
  let sum: string | null = null;
  for (const one of all) if (one !== null) sum = addMoney(sum ?? "0", one);
  return sum;
}
