/** Owns the parts that two lists have in common, for differences of texts. */

/**
 * Returns the positions of a longest common subsequence in both lists. If more than `pairsMax` pairs would have to be
 * compared, only the common beginning and end count.
 */
export function commonParts(left: readonly string[], right: readonly string[], pairsMax: number): [Set<number>, Set<number>] {
  const inLeft = new Set<number>();
  const inRight = new Set<number>();
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) {
    inLeft.add(start);
    inRight.add(start++);
  }
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) {
    inLeft.add(left.length - 1 - end);
    inRight.add(right.length - 1 - end++);
  }
  const a = left.slice(start, left.length - end);
  const b = right.slice(start, right.length - end);
  if (a.length * b.length === 0 || a.length * b.length > pairsMax) return [inLeft, inRight];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  const length = (i: number, j: number): number => table[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? length(i + 1, j + 1) + 1 : Math.max(length(i + 1, j), length(i, j + 1));
    }
  }
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      inLeft.add(start + i++);
      inRight.add(start + j++);
    } else if (length(i + 1, j) >= length(i, j + 1)) i++;
    else j++;
  }
  return [inLeft, inRight];
}
