/** Owns long lists: only the rows in view are in the document. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren, Ref } from "preact";
import { useEffect, useImperativeHandle, useLayoutEffect, useMemo, useRef } from "preact/hooks";

export interface VirtualListHandle {
  scrollTo(index: number, where?: "nearest" | "center" | "start" | "end"): void;
  /** The scrolled element. */
  element: HTMLElement | null;
}

export interface VirtualListProps {
  count: number;
  /** Height of a row in pixels, the same for all or by index. */
  rowHeight: number | ((index: number) => number);
  /** Changes when heights by index have changed. */
  heightsVersion?: unknown;
  row: (index: number) => ComponentChildren;
  rowKey?: (index: number) => string | number;
  label: string;
  /** `table` numbers its rows for screen readers; each row then has role `row`. */
  role?: "list" | "table" | "log" | "tree" | "grid";
  class?: string;
  header?: ComponentChildren;
  /** Stays at the end while rows are appended and the end is in view. */
  stickToEnd?: boolean;
  onEndReached?: () => void;
  onScrolled?: (top: number) => void;
  handle?: Ref<VirtualListHandle>;
  footer?: ComponentChildren;
}

const OVERSCAN = 8;

export function VirtualList(props: VirtualListProps) {
  const { count, rowHeight, row } = props;
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(600);
  const atEnd = useRef(true);
  const offsets = useMemo(() => (typeof rowHeight === "number" ? null : prefixSums(count, rowHeight)), [count, props.heightsVersion, typeof rowHeight]);
  const offsetOf = (index: number) => (offsets ? (offsets[index] ?? 0) : index * (rowHeight as number));
  const total = offsetOf(count);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => (height.value = element.clientHeight);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (element && props.stickToEnd && atEnd.current) element.scrollTop = element.scrollHeight;
  }, [total, props.stickToEnd]);

  useImperativeHandle(props.handle ?? null, () => ({
    get element() {
      return box.current;
    },
    scrollTo(index, where = "nearest") {
      const element = box.current;
      if (!element) return;
      const head = element.querySelector<HTMLElement>(".vlist-head")?.offsetHeight ?? 0;
      const start = offsetOf(index);
      const end = offsetOf(index + 1);
      const view = element.clientHeight - head;
      if (where === "start") element.scrollTop = start;
      else if (where === "end") element.scrollTop = end - view;
      else if (where === "center") element.scrollTop = (start + end - view) / 2;
      else if (start < element.scrollTop) element.scrollTop = start;
      else if (end > element.scrollTop + view) element.scrollTop = end - view;
    },
  }));

  const first = Math.max(0, indexAt(top.value, count, offsets, rowHeight) - OVERSCAN);
  const last = Math.min(count, indexAt(top.value + height.value, count, offsets, rowHeight) + 1 + OVERSCAN);
  useEffect(() => {
    if (last >= count) props.onEndReached?.();
  }, [last >= count, count]);

  const role = props.role ?? "list";
  const rows: ComponentChildren[] = [];
  for (let index = first; index < last; index++) {
    rows.push(
      <div key={props.rowKey?.(index) ?? index} class="vlist-row" role={role === "list" ? "listitem" : "presentation"} style={{ transform: `translateY(${offsetOf(index)}px)`, height: `${offsetOf(index + 1) - offsetOf(index)}px` }}>
        {row(index)}
      </div>,
    );
  }
  return (
    <div
      ref={box}
      class={`vlist ${props.class ?? ""}`}
      role={role}
      aria-label={props.label}
      aria-rowcount={role === "table" || role === "grid" ? count + (props.header ? 1 : 0) : undefined}
      tabIndex={0}
      onScroll={(event) => {
        const element = event.currentTarget;
        top.value = element.scrollTop;
        props.onScrolled?.(element.scrollTop);
        atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 4;
      }}
    >
      {props.header && <div class="vlist-head" role={role === "list" ? "listitem" : "presentation"}>{props.header}</div>}
      <div class="vlist-body" role="presentation" style={{ height: `${total}px` }}>
        {rows}
      </div>
      {props.footer}
    </div>
  );
}

function prefixSums(count: number, heightOf: (index: number) => number): Float64Array {
  const sums = new Float64Array(count + 1);
  for (let index = 0; index < count; index++) sums[index + 1] = (sums[index] ?? 0) + heightOf(index);
  return sums;
}

/** Returns the index of the row at a position. */
function indexAt(position: number, count: number, offsets: Float64Array | null, rowHeight: VirtualListProps["rowHeight"]): number {
  if (!offsets) return Math.min(count, Math.max(0, Math.floor(position / (rowHeight as number))));
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((offsets[middle] ?? 0) <= position) low = middle;
    else high = middle - 1;
  }
  return low;
}
