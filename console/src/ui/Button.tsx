/** Owns buttons and links that look like them. */
import type { ComponentChildren, Ref } from "preact";
import { Icon, type IconName } from "./icons";

export interface ButtonProps {
  children?: ComponentChildren;
  onClick?: (event: MouseEvent) => void;
  kind?: "normal" | "primary" | "danger" | "quiet";
  icon?: IconName;
  /** The name for screen readers; required without children. */
  label?: string;
  title?: string;
  type?: "button" | "submit";
  disabled?: boolean;
  busy?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  small?: boolean;
  href?: string;
  class?: string;
  buttonRef?: Ref<HTMLButtonElement>;
}

export function Button(props: ButtonProps) {
  const { children, kind = "normal", icon, label, title, busy } = props;
  const names = ["btn", `btn-${kind}`, props.small && "btn-small", children === undefined && "btn-icon", props.class];
  const content = (
    <>
      {icon && <Icon name={icon} />}
      {children !== undefined && <span class="btn-text">{children}</span>}
    </>
  );
  const className = names.filter(Boolean).join(" ");
  if (props.href !== undefined) {
    return (
      <a class={className} href={props.href} aria-label={label} title={title ?? label}>
        {content}
      </a>
    );
  }
  return (
    <button
      ref={props.buttonRef}
      type={props.type ?? "button"}
      class={className}
      onClick={props.onClick}
      disabled={props.disabled || busy}
      aria-busy={busy || undefined}
      aria-label={label}
      aria-pressed={props.pressed}
      aria-expanded={props.expanded}
      title={title ?? label}
    >
      {content}
    </button>
  );
}
