/** Owns the words for the limits of queues. */
import type { QueueSettings, Schemas } from "../../api/model";
import { countText, numberText } from "../../ui/format";
import { spanText } from "../schedules/words";

export type QueueLimit = Schemas["QueueLimit"];
export type QueueRate = Schemas["QueueRate"];

/** The name of the default queue in addresses and requests. */
export const DEFAULT_QUEUE = "default";

const HOLDS: Record<QueueLimit, string> = {
  paused: "the queue is paused",
  concurrency: "the queue has no free slot",
  rate: "the rate of the queue is used up",
  key_concurrency: "the key has no free slot",
  key_rate: "the rate of the key is used up",
};

/** Returns why a task is held back. */
export function holdText(by: QueueLimit): string {
  return HOLDS[by] ?? by.replaceAll("_", " ");
}

/** Returns a rate: `100 per 1m`. */
export function rateText({ starts_max, period_ms }: QueueRate): string {
  return `${numberText(starts_max)} per ${spanText(period_ms)}`;
}

/** Returns a rate as the command line takes it: `100/1m`. */
export function rateWord({ starts_max, period_ms }: QueueRate): string {
  return `${starts_max}/${spanText(period_ms)}`;
}

export interface Setting {
  label: string;
  text: string;
}

/** Returns the limits of a queue, one each. */
export function settingsText(settings: QueueSettings): Setting[] {
  const { concurrency_max, key_concurrency_max, rate, key_rate, depth_max, weights = [] } = settings;
  const rows: [string, string | null][] = [
    ["Running tasks", textOf(concurrency_max)],
    ["Running tasks of each key", textOf(key_concurrency_max)],
    ["Rate", rate ? rateText(rate) : null],
    ["Rate of each key", key_rate ? rateText(key_rate) : null],
    ["Waiting tasks", isDrained(settings) ? "0: drained" : textOf(depth_max)],
    ["Weights", weights.length > 0 ? weightsText(weights) : null],
    ["Paused", settings.paused ? "yes" : null],
  ];
  return rows.flatMap(([label, text]) => (text === null ? [] : [{ label, text }]));
}

function textOf(limit: number | null | undefined): string | null {
  return limit === null || limit === undefined ? null : numberText(limit);
}

/** The weights that are written out. */
const WEIGHTS_SHOWN = 5;

function weightsText(weights: NonNullable<QueueSettings["weights"]>): string {
  const shown = weights.slice(0, WEIGHTS_SHOWN).map(({ key, weight }) => `${key} ${weight}`).join(", ");
  return weights.length > WEIGHTS_SHOWN ? `${shown} and ${countText(weights.length - WEIGHTS_SHOWN, "more", "more")}` : shown;
}

/** Returns whether a queue takes no standalone task. */
export function isDrained(settings: QueueSettings): boolean {
  return settings.depth_max === 0;
}

export interface SettingChange {
  label: string;
  from: string;
  to: string;
}

/** Returns what a save changes, setting by setting. */
export function changesOf(before: QueueSettings, after: QueueSettings): SettingChange[] {
  const [old, fresh] = [settingsText(before), settingsText(after)];
  const labels = [...new Set([...old, ...fresh].map(({ label }) => label))];
  const of = (settings: Setting[], name: string) => settings.find(({ label }) => label === name)?.text ?? "no limit";
  const changes = labels.map((label) => ({ label, from: of(old, label), to: of(fresh, label) }));
  // Weights that are not written out may differ, too.
  const weights = (settings: QueueSettings) => JSON.stringify(settings.weights ?? []);
  return changes.filter(({ label, from, to }) => from !== to || (label === "Weights" && weights(before) !== weights(after)));
}

type Present = { [Key in keyof QueueSettings]?: NonNullable<QueueSettings[Key]> };

/** Returns the request that replaces settings, without absent ones. */
export function replacement(before: QueueSettings, after: QueueSettings): Present & { replaces: Present } {
  return { ...present(after), replaces: present(before) };
}

function present(settings: QueueSettings): Present {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== null && value !== undefined));
}
