/** Owns how times, durations, sizes, numbers and money are written. */

const units: [string, number][] = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

/** Returns a duration with at most two units: `1.2 s`, `3 min 20 s`, `2 d 4 h`; `whole` leaves out parts of a second. */
export function durationText(ms: number, whole = false): string {
  const abs = Math.max(0, whole ? Math.round(ms / 1000) * 1000 : ms);
  if (whole && abs < 60_000) return `${abs / 1000} s`;
  if (abs < 1000) return `${Math.round(abs)} ms`;
  if (abs < 9950) return `${(abs / 1000).toFixed(1)} s`;
  const seconds = Math.round(abs / 1000) * 1000;
  const at = units.findIndex(([, size]) => seconds >= size);
  const [unit, size] = units[at] ?? ["s", 1000];
  const count = Math.floor(seconds / size);
  const next = units[at + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return next && rest > 0 && count < 100 ? `${count} ${unit} ${rest} ${next[0]}` : `${count} ${unit}`;
}

/** Returns a time relative to `now`: `12 s ago`, `in 3 min`, `just now`. */
export function relativeText(at: number, now: number): string {
  const ms = now - at;
  if (Math.abs(ms) < 1500) return "just now";
  const rounded = Math.abs(ms) < 60_000 ? Math.round(Math.abs(ms) / 1000) * 1000 : Math.abs(ms);
  const text = largestUnit(rounded);
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

function largestUnit(ms: number): string {
  const [unit, size] = units.find(([, candidate]) => ms >= candidate) ?? ["s", 1000];
  return `${Math.floor(ms / size)} ${unit}`;
}

/** Returns the local time: `14:03:22.123` today, with the date otherwise. */
export function clockText(at: number, now = Date.now(), withMs = false): string {
  const date = new Date(at);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${withMs ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : ""}`;
  return new Date(now).toDateString() === date.toDateString() ? time : `${dayText(at)} ${time}`;
}

/** Returns the local day: `2026-11-18`. */
export function dayText(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** Returns the exact local time with its offset, for titles. */
export function exactText(at: number): string {
  const minutes = -new Date(at).getTimezoneOffset();
  const sign = minutes < 0 ? "-" : "+";
  const abs = Math.abs(minutes);
  return `${dayText(at)} ${clockText(at, at, true)} ${sign}${two(Math.floor(abs / 60))}:${two(abs % 60)}`;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}

export function bytesText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

const grouped = new Intl.NumberFormat("en-US");
export function numberText(number: number): string {
  return grouped.format(number);
}

/** Returns `1 run`, `2 runs`. */
export function countText(count: number, one: string, many = `${one}s`): string {
  return `${numberText(count)} ${count === 1 ? one : many}`;
}

/** Returns dollars: `$1,234.57`, with more digits below a dollar: `$0.0125`, `$0.000031`. */
export function moneyText(cost: string): string {
  const dollars = Number(cost);
  const digits = dollars === 0 || dollars >= 1 ? 2 : dollars >= 0.01 ? 4 : 2 - Math.floor(Math.log10(dollars)) - 1;
  const [whole = "0", fraction = ""] = dollars.toFixed(Math.min(12, digits)).split(".");
  return `$${numberText(Number(whole))}.${fraction.replace(/0+$/, "").padEnd(2, "0")}`;
}
