/** Owns the icons: paths on a grid of 16, drawn in the colour of the text. */

const PATHS = {
  runs: "M2 4h12M2 8h12M2 12h8",
  approvals: "M2.5 8.5 6 12l7.5-8",
  workers: "M4 4h8v8H4zM6 1.5V4M10 1.5V4M6 12v2.5M10 12v2.5M1.5 6H4M1.5 10H4M12 6h2.5M12 10h2.5",
  queues: "M2 3h12v3H2zM2 10h12v3H2zM4.5 6v4M11.5 6v4",
  servers: "M2 2.5h12v4.5H2zM2 9h12v4.5H2zM4.5 4.7v.1M4.5 11.2v.1",
  spend: "M8 1.5v13M11.5 4.5C11 3.5 9.5 3 8 3 6 3 4.5 4 4.5 5.5 4.5 9 11.5 7 11.5 10.5 11.5 12 10 13 8 13c-1.7 0-3.2-.6-3.7-1.7",
  kinds: "M2 2.5h5v5H2zM9 2.5h5v5H9zM2 9h5v5H2zM11.5 9v5M9 11.5h5",
  schedules: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 4.5V8l2.5 1.5",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1.1 1.1M11.9 11.9 13 13M3 13l1.1-1.1M11.9 4.1 13 3",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7",
  auto: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 2v12",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  check: "M3 8.5 6.5 12 13 4.5",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  right: "M6 3.5 10.5 8 6 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  left: "M10 3.5 5.5 8 10 12.5",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.5 10.5l3.5 3.5",
  filter: "M2 3h12L9.5 8.5v4.5l-3-1.5v-3z",
  play: "M4.5 3v10l8-5z",
  pause: "M5 3v10M11 3v10",
  stop: "M4 4h8v8H4z",
  refresh: "M13.5 8a5.5 5.5 0 1 1-1.7-4M13.5 1.5v3h-3",
  warning: "M8 2 1.5 13.5h13zM8 6.5v3.5M8 11.8v.1",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 7.5V11M8 5v.1",
  key: "M10.5 2a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M8 8l-5.5 5.5M4.5 11.5 6 13",
  menu: "M2 4h12M2 8h12M2 12h12",
  out: "M6.5 2.5h-4v11h4M10 5l3 3-3 3M13 8H6",
  external: "M9 2.5h4.5V7M13.5 2.5 7.5 8.5M11 9.5v4H2.5V5h4",
  star: "M8 2l1.8 3.8 4.2.5-3.1 2.9.8 4.1L8 11.3l-3.7 2 .8-4.1L2 6.3l4.2-.5z",
  branch: "M4.5 2v12M4.5 9c5 0 7-1 7-5M9.5 5.5l2-2 2 2",
  help: "M6 6c0-1.2.9-2 2-2s2 .8 2 1.9C10 7.5 8 7.6 8 9.5M8 11.8v.1",
  keyboard: "M1.5 4h13v8.5h-13zM4 6.8v.1M6.7 6.8v.1M9.3 6.8v.1M12 6.8v.1M5 9.8h6",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
