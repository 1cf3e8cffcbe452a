/** Owns the time of a slot: in the zone of the viewer, with the zone of the schedule in the title. */
import { clockText, exactText, relativeText } from "../../ui/format";
import { now } from "../../ui/hooks";
import { zonedText } from "./slotDays";

export interface SlotTimeProps {
  at: string;
  zone: string;
  /** Also how far away it is. */
  relative?: boolean;
}

export function SlotTime({ at, zone, relative }: SlotTimeProps) {
  const time = Date.parse(at);
  return (
    <time dateTime={at} title={`${exactText(time)}\n${zonedText(time, zone)}`}>
      {clockText(time)}
      {relative && <span class="muted"> · <Relative time={time} /></span>}
    </time>
  );
}

function Relative({ time }: { time: number }) {
  return <>{relativeText(time, now.value)}</>;
}
