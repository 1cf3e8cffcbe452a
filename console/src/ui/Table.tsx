/** Owns tables of some hundred rows at most; on a phone each row becomes a card. */
import { type ComponentChildren, Fragment } from "preact";

export interface Column<T> {
  id: string;
  label: ComponentChildren;
  cell: (row: T) => ComponentChildren;
  /** Numbers are aligned at the right. */
  number?: boolean;
  /** Takes the rest of the width and is cut with an ellipsis. */
  grow?: boolean;
}

export interface TableProps<T> {
  columns: Column<T>[];
  rows: readonly T[];
  rowKey: (row: T) => string;
  label: string;
  empty?: ComponentChildren;
  /** Content below a row, over all columns. */
  below?: (row: T) => ComponentChildren;
}

export function Table<T>({ columns, rows, rowKey, label, empty, below }: TableProps<T>) {
  if (rows.length === 0 && empty !== undefined) return <>{empty}</>;
  const classOf = (column: Column<T>) => [column.number && "number", column.grow && "grow"].filter(Boolean).join(" ");
  return (
    <div class="table-box" role="region" aria-label={label} tabIndex={0}>
      <table class="table">
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={classOf(column)}>
                {column.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const extra = below?.(row);
            return (
              <Fragment key={rowKey(row)}>
                <tr>
                  {columns.map((column) => (
                    <td key={column.id} class={classOf(column)} data-label={typeof column.label === "string" ? column.label : undefined}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
                {extra && (
                  <tr class="table-below">
                    <td colSpan={columns.length}>{extra}</td>
                  </tr>
                )}
              </Fragment>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
