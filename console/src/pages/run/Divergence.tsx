/** Owns the display of a divergence: what the log has against what the code asked for, with the hint. */
import { Prose } from "../../ui/Prose";
import { href } from "../../ui/router";
import { type Divergence, eventRef } from "./model";
import { diffWords, type Piece } from "./wordDiff";

export function DivergenceNote({ run, generation, divergence }: { run: string; generation: number; divergence: Divergence }) {
  const { left, right } = diffWords(divergence.recorded, divergence.attempted);
  return (
    <section class="divergence" aria-label="Divergence">
      <header class="row spread">
        <h2>The code diverged from the log</h2>
        <a href={href(["runs", run, "log"], { event: eventRef(generation, divergence.index) })}>event {divergence.index} in the log</a>
      </header>
      <div class="halves">
        <Side title="Recorded in the log" pieces={left} mark="del" />
        <Side title="Asked for by the code" pieces={right} mark="ins" />
      </div>
      {divergence.nearest && <p class="muted">The last call on which both agree: <Prose text={divergence.nearest} /></p>}
      <p><strong>Hint:</strong> <Prose text={divergence.hint} /></p>
    </section>
  );
}

export function Side({ title, pieces, mark }: { title: string; pieces: Piece[]; mark: "del" | "ins" }) {
  return (
    <div class="half">
      <h3>{title}</h3>
      <pre tabIndex={0}><Marked pieces={pieces} mark={mark} /></pre>
    </div>
  );
}

export function Marked({ pieces, mark: Mark }: { pieces: Piece[]; mark: "del" | "ins" | "mark" }) {
  return <>{pieces.map((piece, at) => (piece.isSame ? <span key={at}>{piece.text}</span> : <Mark key={at}>{piece.text}</Mark>))}</>;
}
