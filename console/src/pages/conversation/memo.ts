/** Owns components that are drawn again only if a prop changed; Preact has this only in its compat package. */
import { Component, type ComponentChildren, type ComponentType, createElement } from "preact";

export function memo<P extends object>(render: (props: P) => ComponentChildren): ComponentType<P> {
  // Handlers are new at each drawing and do the same.
  const isSame = (a: Record<string, unknown>, b: Record<string, unknown>) =>
    Object.keys(b).every((name) => Object.is(a[name], b[name]) || (typeof a[name] === "function" && typeof b[name] === "function"));
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      return !isSame(this.props as Record<string, unknown>, next as Record<string, unknown>);
    }
    override render() {
      return createElement(render as ComponentType<P>, this.props as never);
    }
  };
}
