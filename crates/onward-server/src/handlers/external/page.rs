//! Pages of an external engine's log, bounded in events and in bytes.

use onward_core::{Event, Index, Payload, Record, RunKey};
use onward_runtime::{Runtime, RuntimeError};
use serde_json::value::RawValue;

use crate::http::documents::{ExternalEvent, LogPosition};
use crate::http::log_page::{Line, LogPage, PAGE_BYTES_MAX, RECORDS};

/// Reads up to `limit` of the engine's events from its index `from` on, starting at the run's event `at`. A short page does not
/// mean the end; an empty page does.
pub(crate) async fn read(runtime: &Runtime, key: &RunKey, at: Index, from: Index, limit: usize) -> Result<LogPage, RuntimeError> {
    let mut page = LogPage { lines: Vec::new(), next: None };
    let (mut at, mut bytes) = (at, 0);
    while page.lines.len() < limit && bytes < PAGE_BYTES_MAX {
        let records = runtime.read_log(key, None, at, RECORDS).await?;
        if records.is_empty() {
            break;
        }
        for record in &records {
            let (size, whole) = take(&mut page, record, from, limit);
            bytes += size;
            if !whole {
                break;
            }
            at = record.next_index();
        }
    }
    page.next = Some(LogPosition { generation: 0, from: at });
    Ok(page)
}

/// Adds a record's events to the page; returns their size, and whether all of them fit.
fn take(page: &mut LogPage, record: &Record, from: Index, limit: usize) -> (usize, bool) {
    let Some(Event::ExternalAppended(appended)) = record.events.first() else { return (0, true) };
    let mut bytes = 0;
    for (index, event) in appended.indexed().filter(|(index, _)| *index >= from) {
        if page.lines.len() >= limit {
            return (bytes, false);
        }
        let json = serde_json::value::to_raw_value(&ExternalEvent { index, at: record.at, event: raw(event) });
        let json = json.expect("events serialize");
        bytes += json.get().len();
        page.lines.push(Line { generation: 0, index, json });
    }
    (bytes, true)
}

/// Returns the engine's JSON as it was stored; a payload that is not JSON is returned as payloads are shown elsewhere.
pub(crate) fn raw(payload: &Payload) -> Box<RawValue> {
    let text = std::str::from_utf8(payload.data()).ok().filter(|_| payload.is_json());
    let raw = text.and_then(|text| RawValue::from_string(text.to_owned()).ok());
    raw.unwrap_or_else(|| serde_json::value::to_raw_value(payload).expect("payloads serialize"))
}
