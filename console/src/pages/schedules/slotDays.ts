/** Owns the slots of a calendar: grouped by day, counted by hour, and their times in the zone of the schedule. */
import type { UpcomingSlot } from "../../api/model";
import { dayText } from "../../ui/format";

export interface SlotDay {
  /** The local day of the viewer: `2026-11-18`. */
  day: string;
  slots: UpcomingSlot[];
  /** The number of slots of each hour. */
  hours: number[];
}

/** Groups slots, which are in order, by the viewer's day. */
export function slotDays(slots: readonly UpcomingSlot[]): SlotDay[] {
  const days: SlotDay[] = [];
  for (const slot of slots) {
    const at = Date.parse(slot.slot);
    const day = dayText(at);
    let last = days.at(-1);
    if (last?.day !== day) days.push((last = { day, slots: [], hours: Array<number>(24).fill(0) }));
    last.slots.push(slot);
    const hour = new Date(at).getHours();
    last.hours[hour] = (last.hours[hour] ?? 0) + 1;
  }
  return days;
}

/** Returns how dark a count is shown, from 0 to 4. */
export function heatOf(count: number): number {
  return count === 0 ? 0 : count === 1 ? 1 : count <= 4 ? 2 : count <= 20 ? 3 : 4;
}

const formats = new Map<string, Intl.DateTimeFormat | null>();

/** Returns a time in a zone, `2026-11-20 09:00:00 Europe/Berlin`; only the name of a zone that the browser does not know. */
export function zonedText(at: number, zone: string): string {
  if (!formats.has(zone)) formats.set(zone, formatOf(zone));
  const format = formats.get(zone);
  if (!format) return zone;
  const parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, value]));
  return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second} ${zone}`;
}

function formatOf(zone: string): Intl.DateTimeFormat | null {
  const two = "2-digit" as const;
  try {
    return new Intl.DateTimeFormat("en-CA", { timeZone: zone, hourCycle: "h23", year: "numeric", month: two, day: two, hour: two, minute: two, second: two });
  } catch {
    return null;
  }
}

/** Returns the name of the viewer's zone. */
export function ownZone(): string {
  return new Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** Returns the zones that the browser knows. */
export function knownZones(): string[] {
  return ["UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")];
}
