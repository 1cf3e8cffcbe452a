/** Owns the difference of two short texts by words, for divergences and for answers of two branches. */
import { commonParts } from "../../ui/common";

export interface Piece {
  text: string;
  isSame: boolean;
}

export interface TextDiff {
  left: Piece[];
  right: Piece[];
}

// Beyond this, the table of the comparison would be slow: such texts are shown as different as a whole.
const PAIRS_MAX = 1500 * 1500;

function words(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

/** Compares two texts; equal words are in both lists, in order. */
export function diffWords(left: string, right: string): TextDiff {
  if (left === right) return { left: pieces([[left, true]]), right: pieces([[right, true]]) };
  const a = words(left);
  const b = words(right);
  const [inA, inB] = commonParts(a, b, PAIRS_MAX);
  const marked = (all: string[], same: Set<number>) => all.map((word, at): [string, boolean] => [word, same.has(at)]);
  return { left: pieces(marked(a, inA)), right: pieces(marked(b, inB)) };
}

function pieces(marked: [string, boolean][]): Piece[] {
  const out: Piece[] = [];
  for (const [text, isSame] of marked) {
    const last = out.at(-1);
    if (last && last.isSame === isSame) last.text += text;
    else if (text !== "") out.push({ text, isSame });
  }
  return out;
}
