/** Owns copying text to the clipboard. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Button } from "./Button";
import { toast } from "./Toasts";

export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const copied = useSignal(false);
  useEffect(() => {
    if (!copied.value) return;
    const timer = setTimeout(() => (copied.value = false), 1500);
    return () => clearTimeout(timer);
  }, [copied.value]);
  return (
    <Button
      kind="quiet"
      small
      icon={copied.value ? "check" : "copy"}
      label={copied.value ? "Copied" : label}
      onClick={async (event) => {
        event.stopPropagation();
        copied.value = await copyText(typeof text === "function" ? text() : text);
        if (!copied.value) toast("The browser did not allow copying.", "error");
      }}
    />
  );
}

/** Copies text; without HTTPS the clipboard API is missing, so a selection is copied instead. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
