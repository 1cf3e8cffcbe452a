/** Owns the picture of a flow: an SVG that the server draws. It is shown as an image, so nothing in it can act on the page. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { send, urlOf, type RequestOptions } from "../../api/client";
import { Problem, hasCode } from "../../api/errors";
import { Button } from "../../ui/Button";
import { Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { useLoad } from "../../ui/hooks";
import { useKeys } from "../../ui/keys";
import { theme } from "../../ui/theme";
import { type Drawing, inTheme, readDrawing } from "./drawing";

export interface PictureProps {
  path: string;
  options: RequestOptions;
  label: string;
  /** Each change draws the picture again. */
  again?: string;
  /** Shown if the server has no such flow. */
  missing?: ComponentChildren;
}

// A step that begins and one that ends at the same time are drawn together.
const REDRAW_MS = 150;

/** The picture behind an address; a newer one replaces it without flicker. */
export function Picture({ path, options, label, again = "", missing }: PictureProps) {
  const url = urlOf(path, options);
  const loaded = useLoad(async (signal) => (await send("GET", url, undefined, signal)).text(), [url]);
  useRedraw(again, loaded);
  const { value: svg } = loaded.data;
  const { value: error } = loaded.error;
  if (error !== null && hasCode(error, "flow_not_found") && missing) return <>{missing}</>;
  // An old picture is better than none while the server is away.
  if (error !== null && (svg === null || error instanceof Problem)) return <ErrorNote error={error} />;
  if (svg === null) return <Loading what="Drawing the flow" />;
  return <Frame key={url} svg={svg} label={label} />;
}

/** Loads again after each change, one request after the other: a run that is faster than the server would never get an answer. */
function useRedraw(again: string, loaded: { loading: { value: boolean; peek(): boolean }; reload(): void }): void {
  const latest = useRef(again);
  latest.current = again;
  const asked = useRef(again);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const isLoading = loaded.loading.value;
  useEffect(() => {
    if (asked.current === again || isLoading || timer.current !== undefined) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      if (loaded.loading.peek()) return;
      asked.current = latest.current;
      loaded.reload();
    }, REDRAW_MS);
  }, [again, isLoading]);
  useEffect(() => () => clearTimeout(timer.current), []);
}

// Smaller than this, names cannot be read: the frame scrolls instead.
const READABLE = 0.7;
// The buttons are below the end of the picture.
const BUTTONS_HEIGHT = 44;
const ZOOM_MIN = 0.1;
const ZOOM_MAX = 3;
const ZOOM_STEP = 1.25;

function Frame({ svg, label }: { svg: string; label: string }) {
  const drawing = useMemo(() => readDrawing(svg), [svg]);
  const address = useAddress(svg);
  /** Null is as wide as the frame, as long as names can be read. */
  const zoom = useSignal<number | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const image = useRef<HTMLImageElement>(null);
  const { width, height } = drawing;
  const scale = () => (image.current?.clientWidth ?? width) / width;
  const change = (factor: number) => (zoom.value = Math.min(ZOOM_MAX, Math.max(ZOOM_MIN, scale() * factor)));
  const showAll = () => {
    const { clientWidth, clientHeight } = box.current ?? { clientWidth: width, clientHeight: height };
    zoom.value = Math.max(ZOOM_MIN, Math.min(1, clientWidth / width, (clientHeight - BUTTONS_HEIGHT) / height));
  };
  useKeys("Graph", [
    { keys: "+", what: "zoom in", run: () => change(ZOOM_STEP) },
    { keys: "-", what: "zoom out", run: () => change(1 / ZOOM_STEP) },
    { keys: "0", what: "show everything", run: showAll },
  ]);
  useMiddle(box, zoom.value);
  useCtrlWheel(box, change);
  const drag = useDrag(box);
  useScrollToWork(box, scale, drawing, address !== null);
  const size = zoom.value === null ? { width: `${width}px`, maxWidth: "100%", minWidth: `${width * READABLE}px` } : { width: `${width * zoom.value}px` };
  return (
    <div class="flow-frame">
      <div ref={box} class="flow-scroll" role="region" aria-label={label} tabIndex={0} {...drag}>
        {address !== null && (
          <img
            ref={image}
            class="flow-picture"
            src={address}
            alt={drawing.words}
            style={{ ...size, aspectRatio: `${width} / ${height}` }}
            draggable={false}
            onMouseMove={(event) => (event.currentTarget.title = wordsAt(drawing, event.offsetX / scale(), event.offsetY / scale()))}
          />
        )}
      </div>
      <div class="flow-zoom">
        <Button small icon="minus" label="Zoom out" onClick={() => change(1 / ZOOM_STEP)} />
        <Button small icon="plus" label="Zoom in" onClick={() => change(ZOOM_STEP)} />
        <Button small title="Show everything" onClick={showAll}>Fit</Button>
        <Button small title="Actual size" onClick={() => (zoom.value = 1)}>100 %</Button>
      </div>
    </div>
  );
}

/** Returns the address of the picture in the chosen theme. */
function useAddress(svg: string): string | null {
  const address = useSignal<string | null>(null);
  const chosen = theme.value;
  useLayoutEffect(() => {
    const made = URL.createObjectURL(new Blob([inTheme(svg, chosen)], { type: "image/svg+xml" }));
    address.value = made;
    return () => URL.revokeObjectURL(made);
  }, [svg, chosen]);
  return address.value;
}

type Box = { current: HTMLDivElement | null };

/** Keeps the middle of what is shown in the middle while the zoom changes. */
function useMiddle(box: Box, zoom: number | null): void {
  const middle = useRef({ x: 0.5, y: 0 });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    if (zoom !== null) {
      element.scrollLeft = middle.current.x * element.scrollWidth - element.clientWidth / 2;
      element.scrollTop = middle.current.y * element.scrollHeight - element.clientHeight / 2;
    }
    const note = () => {
      const { scrollLeft, scrollTop, clientWidth, clientHeight, scrollWidth, scrollHeight } = element;
      middle.current = { x: (scrollLeft + clientWidth / 2) / scrollWidth, y: (scrollTop + clientHeight / 2) / scrollHeight };
    };
    note();
    element.addEventListener("scroll", note);
    return () => element.removeEventListener("scroll", note);
  }, [zoom]);
}

/** Zooms by the wheel with Ctrl, which is also what a pinch on a touchpad sends. */
function useCtrlWheel(box: Box, change: (factor: number) => void): void {
  useEffect(() => {
    const element = box.current;
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      change(Math.exp(-Math.max(-50, Math.min(50, event.deltaY)) / 200));
    };
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, []);
}

/** Moves the picture with a mouse; fingers scroll it anyway. */
function useDrag(box: Box) {
  const from = useRef<{ x: number; y: number } | null>(null);
  return {
    onPointerDown: (event: PointerEvent) => {
      if (event.pointerType !== "mouse" || event.button !== 0 || !(event.target instanceof HTMLImageElement)) return;
      from.current = { x: event.clientX, y: event.clientY };
      box.current?.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      if (!from.current) return;
      box.current?.scrollBy({ left: from.current.x - event.clientX, top: from.current.y - event.clientY, behavior: "instant" });
      from.current = { x: event.clientX, y: event.clientY };
    },
    onPointerUp: () => (from.current = null),
    onPointerCancel: () => (from.current = null),
  };
}

/** Scrolls to the step that a run executes or that failed, or to the start, when the picture is first shown. */
function useScrollToWork(box: Box, scale: () => number, drawing: Drawing, isShown: boolean): void {
  useLayoutEffect(() => {
    const element = box.current;
    const step = drawing.boxes.find((step) => step.isCurrent) ?? drawing.boxes[0];
    if (!element || !step || !isShown) return;
    element.scrollLeft = (step.x + step.width / 2) * scale() - element.clientWidth / 2;
    element.scrollTop = (step.y + step.height / 2) * scale() - element.clientHeight / 2;
  }, [isShown]);
}

function wordsAt({ boxes }: Drawing, x: number, y: number): string {
  return boxes.find((step) => x >= step.x && x <= step.x + step.width && y >= step.y && y <= step.y + step.height)?.words ?? "";
}
