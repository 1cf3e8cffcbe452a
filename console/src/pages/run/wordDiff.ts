/** Owns the difference of two short texts by words, for divergences and for answers of two branches. */

export interface Piece {
  text: string;
  isSame: boolean;
}

export interface TextDiff {
  left: Piece[];
  right: Piece[];
}

// Beyond this, the table of the comparison would be slow: such texts are shown as different as a whole.
const WORDS_MAX = 1500;

function words(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

/** Compares two texts; equal words are in both lists, in order. */
export function diffWords(left: string, right: string): TextDiff {
  if (left === right) return { left: pieces([[left, true]]), right: pieces([[right, true]]) };
  const a = words(left);
  const b = words(right);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const middleA = a.slice(start, a.length - end);
  const middleB = b.slice(start, b.length - end);
  const [sameA, sameB] = common(middleA, middleB);
  const marked = (all: string[], middle: string[], same: Set<number>): [string, boolean][] => [
    ...all.slice(0, start).map((word): [string, boolean] => [word, true]),
    ...middle.map((word, at): [string, boolean] => [word, same.has(at)]),
    ...all.slice(all.length - end).map((word): [string, boolean] => [word, true]),
  ];
  return { left: pieces(marked(a, middleA, sameA)), right: pieces(marked(b, middleB, sameB)) };
}

/** Returns the positions of a longest common subsequence in both lists. */
function common(a: string[], b: string[]): [Set<number>, Set<number>] {
  const inA = new Set<number>();
  const inB = new Set<number>();
  if (a.length * b.length === 0 || a.length > WORDS_MAX || b.length > WORDS_MAX) return [inA, inB];
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j]
        ? (table[(i + 1) * width + j + 1] ?? 0) + 1
        : Math.max(table[(i + 1) * width + j] ?? 0, table[i * width + j + 1] ?? 0);
    }
  }
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      inA.add(i++);
      inB.add(j++);
    } else if ((table[(i + 1) * width + j] ?? 0) >= (table[i * width + j + 1] ?? 0)) i++;
    else j++;
  }
  return [inA, inB];
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
