/** Owns sentences of the server: words between backticks are shown as code. */

export function Prose({ text }: { text: string }) {
  const parts = text.split("`");
  // Without its partner, a backtick is a character like others.
  if (parts.length % 2 === 0) return <>{text}</>;
  return <>{parts.map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>;
}
