/** Owns the small chart of starts and ends over time. A click on a bar shows the runs of that time. */
import type { Activity } from "../../api/model";
import { Time } from "../../ui/Time";
import { countText, durationText, exactText, numberText } from "../../ui/format";
import { setQuery } from "../../ui/router";

const HEIGHT = 40;

export function ActivityChart({ activity }: { activity: Activity }) {
  const { buckets } = activity;
  const most = Math.max(1, ...buckets.map((bucket) => Math.max(bucket.started, bucket.completed + bucket.failed + bucket.canceled)));
  const sum = (name: "started" | "completed" | "failed" | "canceled") => buckets.reduce((total, bucket) => total + bucket[name], 0);
  const summary = `${countText(sum("started"), "start")}, ${sum("completed")} completed, ${sum("failed")} failed, ${sum("canceled")} canceled`;
  const scale = (count: number) => (count === 0 ? 0 : Math.max(1.5, (count / most) * HEIGHT));
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${buckets.length} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`Runs over time: ${summary}`}>
        {buckets.map((bucket, index) => {
          const parts = [
            ["good", bucket.completed],
            ["off", bucket.canceled],
            ["bad", bucket.failed],
          ] as const;
          let top = HEIGHT;
          return (
            <g key={bucket.at} class="chart-bucket" onClick={() => show(bucket.at, activity.bucket_ms)}>
              <title>{`${exactText(Date.parse(bucket.at))}\n${bucket.started} started, ${bucket.completed} completed, ${bucket.failed} failed, ${bucket.canceled} canceled`}</title>
              <rect class="chart-hit" x={index} y={0} width={1} height={HEIGHT} />
              <rect class="chart-started" x={index + 0.08} y={HEIGHT - scale(bucket.started)} width={0.38} height={scale(bucket.started)} />
              {parts.map(([tone, count]) => {
                const height = scale(count);
                top -= height;
                return height > 0 && <rect key={tone} class={`chart-${tone}`} x={index + 0.52} y={top} width={0.38} height={height} />;
              })}
            </g>
          );
        })}
      </svg>
      <figcaption>
        <Time at={activity.from} mode="clock" />
        <span class="chart-span">{durationText(Date.parse(activity.until) - Date.parse(activity.from), true)}</span>
        <span class="legend legend-started">{numberText(sum("started"))} started</span>
        <span class="legend legend-good">{numberText(sum("completed"))} completed</span>
        <span class="legend legend-bad">{numberText(sum("failed"))} failed</span>
        {sum("canceled") > 0 && <span class="legend legend-off">{numberText(sum("canceled"))} canceled</span>}
        <span class="chart-end">{Date.now() - Date.parse(activity.until) < 60_000 ? "now" : <Time at={activity.until} mode="clock" />}</span>
      </figcaption>
    </figure>
  );
}

function show(at: string, ms: number): void {
  setQuery({ since: null, from: at, until: new Date(Date.parse(at) + ms).toISOString() }, false);
}
