/**
 * Owns that texts are shown as they are: characters that hide or turn others around become visible.
 * A payload with U+202E could otherwise show an approver `exe.txt` for `txt.exe`.
 */
import { type VNode, options } from "preact";

// Controls except tab and line breaks, directional marks and overrides, and invisible characters.
// The joiners U+200C and U+200D stay: scripts and emoji need them.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Returns a text whose hidden characters are written as `\u{202e}`. */
export function plain(text: string): string {
  return text.search(HIDDEN) < 0 ? text : text.replace(HIDDEN, (char) => `\\u{${char.charCodeAt(0).toString(16)}}`);
}

/** Makes every text of the console plain. Values of form controls and copied texts stay exact. */
export function showPlainTexts(): void {
  const before = options.vnode;
  options.vnode = (vnode: VNode) => {
    const props = vnode.props as { children?: unknown } | null;
    if (props && typeof vnode.type === "string") props.children = plainChildren(props.children);
    before?.(vnode);
  };
}

function plainChildren(children: unknown): unknown {
  if (typeof children === "string") return plain(children);
  if (!Array.isArray(children) || !children.some((child) => typeof child === "string")) return children;
  return children.map((child: unknown) => (typeof child === "string" ? plain(child) : child));
}
