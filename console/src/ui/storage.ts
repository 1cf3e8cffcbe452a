/** Owns what the browser remembers for the console. It works without storage, for example in private windows. */

export function recall(name: string): string | null {
  try {
    return localStorage.getItem(`onward.${name}`);
  } catch {
    return null;
  }
}

export function remember(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`onward.${name}`);
    else localStorage.setItem(`onward.${name}`, value);
  } catch {
    // The setting lasts until the page is closed.
  }
}
