/** Owns the controls of the filter. They write the address; the list follows it. */
import { useSignal } from "@preact/signals";
import { type ReadonlySignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Counts, STATUSES } from "../../api/model";
import { Button } from "../../ui/Button";
import { Input, Select } from "../../ui/Field";
import { localTime } from "../../ui/SchemaForm";
import { toneOf } from "../../ui/Status";
import { numberText } from "../../ui/format";
import { route, setQuery } from "../../ui/router";
import { type Filter, SPANS, isEmpty, noFilter } from "./filter";
import { ViewMenu } from "./ViewMenu";

export function Filters({ filter, kinds }: { filter: Filter; kinds: readonly string[] }) {
  const custom = filter.from !== "" || filter.until !== "";
  const open = useSignal(custom || filter.attributes.length > 0);
  const times = [{ value: "", label: "any time" }, ...Object.entries(SPANS).map(([value, { label }]) => ({ value, label })), { value: "custom", label: "from … until …" }];
  return (
    <div class="filters">
      <div class="filter-row">
        <ViewMenu />
        <Search text={filter.text} />
        <Typed label="Kind" value={filter.kind} list={kinds} name="kind" placeholder="any kind" />
        <Select
          label="Time of start"
          quiet
          value={custom ? "custom" : filter.since}
          options={times}
          onChange={(value) => {
            if (value === "custom") setQuery({ since: null, from: new Date(Date.now() - 3_600_000).toISOString() });
            else setQuery({ since: value || null, from: null, until: null });
          }}
        />
        <Button icon="filter" expanded={open.value} onClick={() => (open.value = !open.value)}>
          Attributes
        </Button>
        {(!isEmpty(filter) || filter.text !== "") && (
          <Button kind="quiet" icon="close" onClick={() => setQuery(noFilter(route.peek().query), false)}>
            Clear
          </Button>
        )}
      </div>
      {custom && (
        <div class="filter-row">
          <TimeInput label="From" name="from" value={filter.from} />
          <TimeInput label="Until" name="until" value={filter.until} />
        </div>
      )}
      {(open.value || filter.attributes.length > 0) && <AttributeFilters filter={filter} />}
    </div>
  );
}

function TimeInput({ label, name, value }: { label: string; name: string; value: string }) {
  return (
    <Input label={label} type="datetime-local" step={1} value={localTime(value)} onInput={(text) => setQuery({ [name]: text === "" ? null : new Date(text).toISOString() })} />
  );
}

/** A field that writes the address after a pause in typing. */
function useTyped(value: string, write: (text: string) => void): [ReadonlySignal<string>, (text: string) => void] {
  const text = useSignal(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    clearTimeout(timer.current);
    text.value = value;
  }, [value]);
  return [
    text,
    (entered) => {
      text.value = entered;
      clearTimeout(timer.current);
      timer.current = setTimeout(() => write(entered.trim()), 250);
    },
  ];
}

function Typed({ label, value, list, name, placeholder }: { label: string; value: string; list: readonly string[]; name: string; placeholder: string }) {
  const [text, type] = useTyped(value, (entered) => setQuery({ [name]: entered || null }));
  return <Input label={label} quiet value={text.value} list={list} placeholder={placeholder} onInput={type} />;
}

function Search({ text: value }: { text: string }) {
  const [text, type] = useTyped(value, (entered) => setQuery({ q: entered || null }));
  return (
    <div class="search" data-search>
      <Input label="Search in ids, kinds and attributes" quiet type="search" value={text.value} placeholder="id or text" onInput={type} />
    </div>
  );
}

function AttributeFilters({ filter }: { filter: Filter }) {
  const name = useSignal("");
  const value = useSignal("");
  const add = () => {
    if (name.value.trim() === "") return;
    setQuery({ [`attr.${name.value.trim()}`]: value.value });
    name.value = value.value = "";
  };
  return (
    <form class="filter-row" aria-label="Attributes" onSubmit={(event) => { event.preventDefault(); add(); }}>
      {filter.attributes.map((attribute) => (
        <Button key={attribute.name} small icon="close" label={`Remove the filter ${attribute.name}`} onClick={() => setQuery({ [`attr.${attribute.name}`]: null })}>
          {`${attribute.name} = ${attribute.value}`}
        </Button>
      ))}
      <Input label="Attribute" quiet placeholder="attribute" value={name.value} onInput={(text) => (name.value = text)} />
      <Input label="Value" quiet placeholder="value" value={value.value} onInput={(text) => (value.value = text)} />
      <Button type="submit" disabled={name.value.trim() === "" || value.value === ""}>
        Add
      </Button>
    </form>
  );
}

/** The counts by status, each a switch of the filter. */
export function StatusCounts({ filter, counts }: { filter: Filter; counts: Counts | null }) {
  return (
    <div class="counts" role="group" aria-label="Status">
      {STATUSES.map((status) => {
        const chosen = filter.statuses.includes(status);
        const count = counts?.counts[status];
        const next = chosen ? filter.statuses.filter((item) => item !== status) : [...filter.statuses, status];
        return (
          <button key={status} type="button" class={`count status-${toneOf(status)} count-${count ? status : "none"}`} aria-pressed={chosen} onClick={() => setQuery({ status: next }, false)}>
            <span class="dot" aria-hidden="true" />
            {status}
            <span class="count-number">{count === undefined ? "…" : `${numberText(count)}${counts?.complete === false ? "+" : ""}`}</span>
          </button>
        );
      })}
    </div>
  );
}
