/** Owns sums of money: exact, because a double would round small costs. */

const DECIMALS = 12;

/** Adds two costs of the API (up to twelve decimals). */
export function addMoney(a: string, b: string): string {
  const sum = units(a) + units(b);
  const digits = sum.toString().padStart(DECIMALS + 1, "0");
  return `${digits.slice(0, -DECIMALS)}.${digits.slice(-DECIMALS)}`.replace(/\.?0+$/, "") || "0";
}

function units(cost: string): bigint {
  const [whole = "0", fraction = ""] = cost.split(".");
  return BigInt(whole + fraction.padEnd(DECIMALS, "0").slice(0, DECIMALS));
}
