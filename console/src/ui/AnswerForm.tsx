/** Owns the structured answer of an approval: the form of its schema, and what the server refused. */
import { type Signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { Problem, type Violation } from "../api/errors";
import { printJson } from "../api/json";
import { type Approval, jsonOf } from "../api/model";
import { SchemaForm } from "./SchemaForm";
import { type Schema, initialOf } from "./schema";

export interface Answer {
  value: Signal<unknown>;
  /** False while some text is not JSON. */
  isValid: Signal<boolean>;
  /** What the server refused of the value. */
  violations: Signal<readonly Violation[]>;
}

/** Returns the answer to an approval; it begins with the defaults of the schema. */
export function useAnswer(approval: Approval | undefined): Answer {
  const answer = { value: useSignal<unknown>(undefined), isValid: useSignal(true), violations: useSignal<readonly Violation[]>([]) };
  const of = useRef<string | undefined>(undefined);
  // An effect would run after the form is on the screen, and overwrite what was entered until then.
  if (of.current !== approval?.id) {
    of.current = approval?.id;
    const schema = schemaOf(approval);
    answer.value.value = schema ? initialOf(schema, schema) : undefined;
  }
  return answer;
}

/** Returns the part of an approving decision with the answer. */
export function answerBody(approval: Approval | undefined, { value }: Answer): { answer?: unknown } {
  return approval?.answer_schema && value.value !== undefined ? { answer: value.value } : {};
}

/** Returns the arguments of the command that approves with the answer. */
export function answerFlags(approval: Approval | undefined, { value }: Answer): string[] {
  return approval?.answer_schema && value.value !== undefined ? ["--answer", printJson(value.value)] : [];
}

/** Keeps what the server refused of the answer; returns whether the form shows it. */
export function noteRefusal({ violations }: Answer, error: unknown): boolean {
  violations.value = error instanceof Problem && error.code === "answer_invalid" ? error.violations : [];
  return violations.value.length > 0;
}

export function AnswerForm({ approval, answer }: { approval: Approval; answer: Answer }) {
  if (!approval.answer_schema) return null;
  const schema = schemaOf(approval);
  return (
    <section class="stack" aria-label="Answer">
      <h3>Answer</h3>
      {schema === null && <p class="muted">The schema of the answer is encrypted. The worker checks the answer.</p>}
      <SchemaForm
        key={approval.id}
        schema={schema}
        value={answer.value.value}
        label="Answer"
        violations={answer.violations.value}
        onChange={(value, isValid) => {
          answer.value.value = value;
          answer.isValid.value = isValid;
          answer.violations.value = [];
        }}
      />
    </section>
  );
}

function schemaOf(approval: Approval | undefined): Schema | null {
  const schema = jsonOf(approval?.answer_schema);
  return typeof schema === "object" && schema !== null && !Array.isArray(schema) ? (schema as Schema) : null;
}
