/** Owns the display of the commands that do the same as a button. */
import type { Lines } from "../api/commands";
import { CopyButton } from "./CopyButton";

export function CommandLines({ lines, open = false }: { lines: Lines; open?: boolean }) {
  return (
    <details class="commands" open={open}>
      <summary>The same from a shell</summary>
      {lines.cli && <Line label="command line" text={lines.cli} />}
      <Line label="curl" text={lines.curl} />
    </details>
  );
}

function Line({ label, text }: { label: string; text: string }) {
  return (
    <div class="command">
      <code tabIndex={0} role="textbox" aria-readonly="true" aria-label={label}>
        {text}
      </code>
      <CopyButton text={text} label={`Copy the ${label}`} />
    </div>
  );
}
