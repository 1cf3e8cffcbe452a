/** Owns the calendar of the next slots: a row per day with a strip of its hours, and the times as text. */
import type { UpcomingSlot } from "../../api/model";
import { countText } from "../../ui/format";
import { heatOf, ownZone, slotDays, zonedText } from "./slotDays";

const TIMES_SHOWN = 8;

export interface SlotCalendarProps {
  slots: readonly UpcomingSlot[];
  zone: string;
}

export function SlotCalendar({ slots, zone }: SlotCalendarProps) {
  const own = ownZone();
  if (slots.length === 0) return <p class="muted">No slot is left.</p>;
  return (
    <div class="slot-days">
      <div class="slot-hours muted" aria-hidden="true"><span>0</span><span>6</span><span>12</span><span>18</span><span>24 h</span></div>
      <ol aria-label="Days with slots">
        {slotDays(slots).map(({ day, slots: ofDay, hours }) => (
          <li key={day} class="slot-day">
            <span class="slot-date tabular">{weekday(day)} {day}</span>
            <span class="slot-strip" aria-hidden="true">
              {hours.map((count, hour) => <span key={hour} class={`slot-hour heat-${heatOf(count)}`} />)}
            </span>
            <span class="slot-times">
              {ofDay.slice(0, TIMES_SHOWN).map((slot) => <SlotOf key={slot.slot} slot={slot} zone={zone} />)}
              {ofDay.length > TIMES_SHOWN && <span class="muted">and {countText(ofDay.length - TIMES_SHOWN, "more slot")}</span>}
            </span>
          </li>
        ))}
      </ol>
      <p class="muted">
        The next {countText(slots.length, "slot")}, in your zone {own}
        {zone !== own && <>; the zone of the schedule is {zone}</>}.
      </p>
    </div>
  );
}

function SlotOf({ slot, zone }: { slot: UpcomingSlot; zone: string }) {
  const at = Date.parse(slot.slot);
  const time = new Date(at);
  const seconds = time.getSeconds() > 0 ? `:${two(time.getSeconds())}` : "";
  const delay = slot.due_at === slot.slot ? "" : `\ndue ${zonedText(Date.parse(slot.due_at), zone)}`;
  return <time class="tabular" dateTime={slot.slot} title={`${zonedText(at, zone)}${delay}`}>{two(time.getHours())}:{two(time.getMinutes())}{seconds}</time>;
}

function weekday(day: string): string {
  return new Date(`${day}T12:00:00`).toLocaleDateString("en-US", { weekday: "short" });
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
