/** Owns what the console reads from the SVG of a flow, and the SVG in the chosen theme. */
import { plain } from "../../ui/plain";
import type { Theme } from "../../ui/theme";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
  /** The texts of the step without cuts, and its state. */
  words: string;
  /** The step runs, or the run ended with its failure. */
  isCurrent: boolean;
}

export interface Drawing {
  width: number;
  height: number;
  /** The picture in words. */
  words: string;
  boxes: Box[];
}

const WORDS_MAX = 8000;

/** Returns the size, the boxes and the words of a picture. The parsed document is never part of the page. */
export function readDrawing(svg: string): Drawing {
  const [before, , after] = atStyle(svg);
  // The policy of the page also counts for styles of a parsed document.
  const { documentElement: root } = new DOMParser().parseFromString(before + after, "image/svg+xml");
  const textOf = (element: Element, name: string) => plain([...element.children].find((child) => child.localName === name)?.textContent ?? "");
  const boxes = [...root.getElementsByClassName("node")].map((node): Box => {
    const [x = 0, y = 0] = (node.getAttribute("transform")?.match(/-?[\d.]+/g) ?? []).map(Number);
    const card = node.getElementsByClassName("card")[0];
    const sizeOf = (name: string) => Number(card?.getAttribute(name) ?? 0);
    const isCurrent = node.classList.contains("running") || node.classList.contains("failed");
    return { x, y, width: sizeOf("width"), height: sizeOf("height"), words: textOf(node, "title"), isCurrent };
  });
  const words = [textOf(root, "title"), textOf(root, "desc"), ...boxes.filter((box) => box.words.includes("\nnow: ")).map((box) => box.words.replaceAll("\n", ", "))].join("\n");
  const sizeOf = (name: string) => Number(root.getAttribute(name)) || 1;
  return { width: sizeOf("width"), height: sizeOf("height"), words: words.slice(0, WORDS_MAX), boxes };
}

/** Returns a picture in a theme. Without this, it would follow the setting of the system alone in some browsers. */
export function inTheme(svg: string, theme: Theme): string {
  if (theme === "auto") return svg;
  const [before, style, after] = atStyle(svg);
  return before + style.replaceAll("(prefers-color-scheme:dark)", theme === "dark" ? "all" : "not all") + after;
}

/** Splits a picture before and after its style. Names are in the other parts, but never with a `<`. */
function atStyle(svg: string): [string, string, string] {
  const [start, end] = [svg.indexOf("<style>"), svg.indexOf("</style>") + "</style>".length];
  return [svg.slice(0, start), svg.slice(start, end), svg.slice(end)];
}
