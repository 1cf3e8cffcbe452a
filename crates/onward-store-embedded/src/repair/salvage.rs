//! Recovery of rows from a damaged directory, page by page and without SQLite.
//!
//! Owns the page parser: which pages are leaves of tables in use, and which rows in them have a valid checksum. Inner pages are
//! not needed to find a leaf: the pointer map has the type of each page, and the checksum of each row identifies its table. So
//! damage to an inner page, to an index or to the schema loses no row. Must never write, nor return a row that does not verify;
//! only large payloads are verified later, by the hash in the row that refers to them.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onward_core::run::Wait;
use onward_core::task::Task;
use onward_core::{Index, KindSchemas, Namespace, RunHead, RunId, RunKey, Timestamp};
use onward_store::StoreError;
use rusqlite::types::{Value, ValueRef};

use crate::file::pages::{self, PAGE_BYTES, SUM_BYTES, Sum};
use crate::file::schema::{self, unusable};
use crate::file::wal::{self, Correction, FRAME_BYTES, HEADER_BYTES, LogDamage, WalContents};
use crate::row::{event_crc, row_crc, unseal, unseal_bytes};

type Page = Box<[u8; PAGE_BYTES]>;

/// Bytes of a page that SQLite uses.
const USABLE: usize = PAGE_BYTES - SUM_BYTES;
/// First byte of a page that is a leaf of a table.
pub(crate) const TABLE_LEAF: u8 = 0x0d;
const TABLE_INNER: u8 = 0x05;
const INDEX_LEAF: u8 = 0x0a;
const INDEX_INNER: u8 = 0x02;
/// Number of pages described by one page of the pointer map.
const MAPPED: u64 = (USABLE / 5) as u64;

/// Page types in the pointer map.
const MAP_ROOT: u8 = 1;
const MAP_FREE: u8 = 2;
const MAP_TREE: u8 = 5;

/// A row that verifies.
pub(crate) struct Row {
    pub table: &'static str,
    pub values: Vec<Value>,
    /// Only a blob in the row verifies and replaces the columns: the number of the row may be that of another.
    pub is_partial: bool,
}

/// The pages of a directory: the database file, overlaid with what verifies of the write-ahead log.
pub(crate) struct Pages {
    file: File,
    log: Option<File>,
    /// The frame, from 0, with the newest version of each page in the log.
    newest: BTreeMap<u64, usize>,
    /// Frames that do not verify, without a later frame of the same page: rows in them may verify.
    torn: Vec<(u64, usize)>,
    corrections: BTreeMap<usize, Correction>,
    count: u64,
    /// Frames are missing between those that verify, so that a page in the database may be newer than that in the log.
    pub has_gap: bool,
}

/// A version of a page: its order (zero is the database, then the frames of the log), its bytes, and whether they verify.
struct Version {
    order: usize,
    page: Page,
    is_sound: bool,
}

impl Pages {
    pub fn open(directory: &Path) -> Result<(Pages, Option<LogDamage>), StoreError> {
        let path = schema::database(directory);
        let file = File::open(&path).map_err(|error| unusable(&path, &error))?;
        let bytes = file.metadata().map_err(|error| unusable(&path, &error))?.len();
        let (found, damage) = wal::examine(directory)?;
        let synced = found.committed().max(damage.as_ref().map_or(0, |damage| damage.synced as usize));
        let synced = synced.min(found.frames.len());
        let newest = committed_pages(&found, synced);
        let torn = torn_frames(&found, synced, &newest);
        let corrections = found.frames.iter().enumerate().filter_map(|(at, frame)| Some((at, frame.correction?))).collect();
        // If every frame is known there is no gap, whatever is damaged.
        let is_whole =
            found.salts.is_some() && damage.as_ref().is_none_or(|damage| damage.frame > 0 && damage.synced as usize <= synced);
        let has_gap = damage.is_some() && !(is_whole && torn.is_empty());
        let log = File::open(wal::path(directory)).ok();
        let count = newest.keys().last().copied().unwrap_or(0).max(bytes.div_ceil(PAGE_BYTES as u64));
        Ok((Pages { file, log, newest, torn, corrections, count, has_gap }, damage))
    }

    fn in_file(&self, number: u64) -> Option<Version> {
        let mut page: Page = Box::new([0; PAGE_BYTES]);
        self.file.read_exact_at(&mut page[..], number.checked_sub(1)? * PAGE_BYTES as u64).ok()?;
        let is_sound = pages::check(number, &page[..]) != Sum::Wrong;
        Some(Version { order: 0, page, is_sound })
    }

    fn in_log(&self, number: u64) -> Option<Version> {
        self.in_frame(*self.newest.get(&number)?, true)
    }

    fn in_frame(&self, frame: usize, is_sound: bool) -> Option<Version> {
        let mut page: Page = Box::new([0; PAGE_BYTES]);
        let at = HEADER_BYTES + frame as u64 * FRAME_BYTES + (FRAME_BYTES - PAGE_BYTES as u64);
        self.log.as_ref()?.read_exact_at(&mut page[..], at).ok()?;
        self.corrections.get(&frame).into_iter().for_each(|correction| correction.apply(&mut page[..]));
        Some(Version { order: frame + 1, page, is_sound })
    }

    fn newest(&self, number: u64) -> Option<Version> {
        self.in_log(number).or_else(|| self.in_file(number))
    }

    fn sound(&self, number: u64) -> Option<Page> {
        self.newest(number).filter(|version| version.is_sound).map(|version| version.page)
    }

    /// Returns the number of pages of the database with a wrong checksum and no frame in the log.
    pub fn damaged(&self) -> u64 {
        let is_damaged = |number: &u64| self.newest(*number).is_some_and(|version| !version.is_sound);
        (1..=self.count).filter(is_damaged).count() as u64
    }

    /// Calls `take` with every row that verifies, older versions of pages first; returns the number of rows that do not.
    pub fn rows(&self, mut take: impl FnMut(Row) -> Result<(), StoreError>) -> Result<u64, StoreError> {
        let free = self.free();
        let reached = self.reached(&free);
        let parents = LazyCell::new(|| self.parents());
        let mut leaves: Vec<(usize, u64)> = Vec::new();
        for number in 2..=self.count {
            if self.is_map(number) || !self.is_used(number, &reached, &free) {
                continue;
            }
            // With a gap in the log either version may be the newer one: rows of both are taken in order.
            let versions = match self.in_log(number) {
                Some(version) if self.has_gap => [self.in_file(number), Some(version)],
                Some(version) => [None, Some(version)],
                None => [self.in_file(number), None],
            };
            // The damaged byte may be the page type. An inner page may have been a leaf once and still contain its rows.
            let may_be_leaf = || !parents.contains(&number) && !self.is_of_index(number);
            let is_leaf = |version: &Version| if version.is_sound { version.page[0] == TABLE_LEAF } else { may_be_leaf() };
            leaves.extend(versions.into_iter().flatten().filter(is_leaf).map(|version| (version.order, number)));
        }
        let may_be_leaf = |number: u64| number > 1 && !self.is_map(number) && self.is_used(number, &reached, &free);
        let torn = self.torn.iter().filter(|(number, _)| may_be_leaf(*number));
        leaves.extend(torn.map(|(number, frame)| (frame + 1, *number)));
        leaves.sort_unstable();
        let mut damaged = 0;
        for (order, number) in leaves {
            let is_torn = self.torn.contains(&(number, order.wrapping_sub(1)));
            let version = if order == 0 { self.in_file(number) } else { self.in_frame(order - 1, !is_torn) };
            let version = version.filter(|version| !is_torn || version.page[0] == TABLE_LEAF);
            let Some(Version { page, is_sound, .. }) = version else { continue };
            let cells = cells(&page, is_sound);
            for cell in cells {
                match cell.and_then(|cell| self.read_row(&page, cell)).and_then(|(rowid, values)| classify(rowid, values)) {
                    Some(row) => take(row)?,
                    None => damaged += 1,
                }
            }
        }
        Ok(damaged)
    }

    /// Calls `take` with run, event index and row number of each entry in an index of three numbers. An index shows which rows
    /// are lost.
    pub fn indexed(&self, mut take: impl FnMut(i64, i64, i64)) {
        self.entries(|entry| {
            if let [Value::Integer(run), Value::Integer(index), Value::Integer(row)] = entry {
                take(*run, *index, *row);
            }
        });
    }

    /// Returns the messages in the indexes of the outbox, which are the only ones of two numbers, with the run's root.
    pub fn indexed_messages(&self) -> BTreeMap<i64, Option<i64>> {
        let mut found = BTreeMap::new();
        self.entries(|entry| match entry {
            // `outbox_id` has the row number twice, `outbox_root` has the root before it.
            [Value::Integer(first), Value::Integer(message)] if first == message => drop(found.entry(*message).or_insert(None)),
            [Value::Integer(root), Value::Integer(message)] => drop(found.insert(*message, Some(*root))),
            _ => {}
        });
        found
    }

    /// Calls `take` with each entry of each index in pages that verify.
    fn entries(&self, mut take: impl FnMut(&[Value])) {
        for number in (2..=self.count).filter(|number| !self.is_map(*number)) {
            let Some(page) = self.sound(number).filter(|page| [INDEX_LEAF, INDEX_INNER].contains(&page[0])) else { continue };
            if self.mapped(number).is_some_and(|kind| ![MAP_ROOT, MAP_TREE].contains(&kind)) {
                continue;
            }
            let (header, child) = if page[0] == INDEX_LEAF { (8, 0) } else { (12, 4) };
            for at in 0..word16(&page, 3).unwrap_or(0).min(USABLE / 2) {
                let entry = word16(&page, header + 2 * at).and_then(|at| {
                    let (length, at) = varint(&page[..], at + child)?;
                    read_record(page.get(at..at + usize::try_from(length).ok()?)?)
                });
                entry.iter().for_each(|entry| take(entry));
            }
        }
    }

    /// Returns the entries of the indexes of runs for some logs, by the number of the log.
    pub fn indexed_runs(&self, logs: &BTreeSet<i64>) -> BTreeMap<i64, BTreeSet<IndexedRun>> {
        let mut found: BTreeMap<i64, BTreeSet<IndexedRun>> = BTreeMap::new();
        self.entries(|entry| {
            if let Some((rk, run)) = indexed_run(entry).filter(|(rk, _)| logs.contains(rk)) {
                found.entry(rk).or_default().insert(run);
            }
        });
        found
    }

    /// Returns whether a page may be a leaf of a tree in use. A freed page still contains its old rows.
    fn is_used(&self, number: u64, reached: &BTreeSet<u64>, free: &BTreeSet<u64>) -> bool {
        let mapped = match self.mapped(number) {
            Some(kind) => [MAP_ROOT, MAP_TREE].contains(&kind),
            None => !free.contains(&number),
        };
        mapped || reached.contains(&number) || (self.has_gap && self.newest.contains_key(&number))
    }

    fn is_map(&self, number: u64) -> bool {
        map_of(number) == number
    }

    /// Returns the type of a page from the pointer map; `None` if that part of the map is damaged.
    fn mapped(&self, number: u64) -> Option<u8> {
        self.map_entry(number).map(|(kind, _)| kind)
    }

    /// Returns the type of a page and its parent from the pointer map.
    fn map_entry(&self, number: u64) -> Option<(u8, u64)> {
        let map = map_of(number);
        let page = self.sound(map)?;
        let at = (5 * (number - map - 1)) as usize;
        let kind = page.get(at).copied().filter(|kind| (MAP_ROOT..=MAP_TREE).contains(kind))?;
        Some((kind, u64::from(word32(&page, at + 1)?)))
    }

    /// Returns the inner pages of all trees, as parents in the pointer map.
    fn parents(&self) -> BTreeSet<u64> {
        let entries = (2..=self.count).filter(|number| !self.is_map(*number)).filter_map(|number| self.map_entry(number));
        entries.filter(|(kind, _)| *kind == MAP_TREE).map(|(_, parent)| parent).collect()
    }

    /// Returns whether the parent of a page is known to be a page of an index.
    fn is_of_index(&self, number: u64) -> bool {
        let parent = self.map_entry(number).filter(|(kind, _)| *kind == MAP_TREE).and_then(|(_, parent)| self.sound(parent));
        parent.is_some_and(|page| page[0] == INDEX_INNER)
    }

    /// Returns the roots and all pages below inner pages of tables that verify.
    fn reached(&self, free: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut reached = BTreeSet::new();
        for number in 2..=self.count {
            let Some(page) = self.sound(number).filter(|page| page[0] == TABLE_INNER) else { continue };
            if self.mapped(number).map_or_else(|| free.contains(&number), |kind| kind == MAP_FREE) {
                continue;
            }
            let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
            for at in 0..cells {
                let child = word16(&page, 12 + 2 * at).and_then(|at| word32(&page, at));
                reached.extend(child.map(u64::from));
            }
            reached.extend(word32(&page, 8).map(u64::from));
        }
        reached
    }

    /// Returns the pages of the free list, as far as it verifies.
    fn free(&self) -> BTreeSet<u64> {
        let mut free = BTreeSet::new();
        let mut trunk = self.sound(1).and_then(|page| word32(&page, 32)).map_or(0, u64::from);
        while trunk > 0 && free.insert(trunk) {
            let Some(page) = self.sound(trunk) else { break };
            let leaves = word32(&page, 4).map_or(0, |count| count as usize).min(USABLE / 4);
            free.extend((0..leaves).filter_map(|at| word32(&page, 8 + 4 * at)).map(u64::from));
            trunk = word32(&page, 0).map_or(0, u64::from);
        }
        free
    }

    /// Reads a row of a leaf, including its overflow pages.
    fn read_row(&self, page: &Page, at: usize) -> Option<(i64, Vec<Value>)> {
        let CellStart { length, rowid, body: at } = cell_start(page, at)?;
        let local = local_bytes(length);
        let mut record = page.get(at..at + local)?.to_vec();
        if local < length {
            let mut next = u64::from(word32(page, at + local)?);
            while record.len() < length {
                let more = self.newest(next)?.page;
                record.extend_from_slice(&more[4..USABLE.min(4 + length - record.len())]);
                next = u64::from(word32(&more, 0)?);
                if next == 0 && record.len() < length {
                    return None;
                }
            }
        }
        Some((rowid, read_record(&record)?))
    }
}

/// A run as an entry of an index names it, with what its log repeats.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexedRun {
    pub key: RunKey,
    /// The time in an entry of a list, which has current generations only. An entry of the index of ids has no time and is that
    /// of a first generation.
    pub created: Option<Timestamp>,
}

/// Reads an entry of an index of runs, which its columns identify: the schema may be damaged. In the index of ids they do so for
/// first generations only, because an entry of `attributes_value` has the number of a run, which is never 0, in place of the
/// generation.
fn indexed_run(entry: &[Value]) -> Option<(i64, IndexedRun)> {
    use Value::{Integer, Text};
    let (namespace, id, created, rk) = match entry {
        // runs_key
        [Text(id), Text(namespace), Integer(0), Integer(rk)] => (namespace, id, None, rk),
        // runs_created, runs_kind, runs_status
        [Text(namespace), Integer(created), Text(id), Text(_), Integer(1), Integer(rk)]
        | [Text(namespace), Text(_), Integer(created), Text(id), Text(_), Integer(1), Integer(rk)]
        | [Text(namespace), Integer(_), Integer(created), Text(id), Text(_), Text(_), Integer(1), Integer(rk)] => {
            (namespace, id, Some(Timestamp(*created as u64)), rk)
        }
        _ => return None,
    };
    let key = RunKey::new(Namespace::new(namespace.clone()).ok()?, RunId::new(id.clone()).ok()?);
    Some((*rk, IndexedRun { key, created }))
}

/// Returns the page of the pointer map that describes a page.
fn map_of(number: u64) -> u64 {
    (number - 2) / (MAPPED + 1) * (MAPPED + 1) + 2
}

/// Returns the frame with the newest committed version of each page, over all frames with known content, even those behind an
/// unknown one.
fn committed_pages(log: &WalContents, synced: usize) -> BTreeMap<u64, usize> {
    // Without a header, the salts of the first frame count.
    let salts = log.frames.first().map(|frame| frame.salts).filter(|_| log.salts.is_none());
    let frames = log.frames.iter().enumerate().take(synced);
    let frames = frames.filter(|(_, frame)| salts.is_none_or(|salts| salts == frame.salts));
    frames.filter(|(_, frame)| frame.is_known).map(|(at, frame)| (u64::from(frame.page), at)).collect()
}

/// Returns the synced frames with unknown content, each with the page it names, unless a later frame has that page.
fn torn_frames(log: &WalContents, synced: usize, newest: &BTreeMap<u64, usize>) -> Vec<(u64, usize)> {
    let frames = log.frames.iter().enumerate().take(synced).filter(|(_, frame)| !frame.is_known);
    let frames = frames.map(|(at, frame)| (u64::from(frame.page), at));
    frames.filter(|(page, at)| newest.get(page).is_none_or(|newest| newest < at)).collect()
}

fn word16(page: &Page, at: usize) -> Option<usize> {
    let bytes = page.get(at..at + 2)?;
    Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}

fn word32(page: &Page, at: usize) -> Option<u32> {
    let bytes = page.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Returns the offsets of the cells of a leaf; `None` for one outside the page.
fn cells(page: &Page, is_sound: bool) -> Vec<Option<usize>> {
    let offset = |at: usize| word16(page, 8 + 2 * at).filter(|at| (8..USABLE).contains(at));
    let max = (USABLE - 8) / 2;
    let declared = word16(page, 3).unwrap_or(0);
    if is_sound {
        return (0..declared.min(max)).map(offset).collect();
    }
    // Behind the valid offsets are those of deleted rows, so the stored count is used unless another one is proven.
    let count = if declared <= max { declared } else { 0 };
    let mut offsets: Vec<Option<usize>> = (0..proven_count(page).unwrap_or(count)).map(offset).collect();
    restore_offset(page, &mut offsets);
    offsets
}

/// Replaces the offset of a row that does not verify by that of the row which no other offset has, if exactly one is damaged and
/// the row fills the part of the content that is neither in use nor free. So no deleted row comes back.
fn restore_offset(page: &Page, offsets: &mut [Option<usize>]) {
    let read = |number: usize, at: usize| read_cell(page, number, at).filter(|cell| verifies(page, cell));
    let found: Vec<Option<Cell>> = offsets.iter().enumerate().map(|(number, at)| read(number, (*at)?)).collect();
    let [damaged] = (0..found.len()).filter(|number| found[*number].is_none()).collect::<Vec<_>>()[..] else { return };
    let Some((begin, mut used)) = free_blocks(page) else { return };
    used.extend(found.iter().flatten().map(|cell| (cell.at, cell.bytes)));
    used.sort_unstable();
    let filled = used.iter().map(|(_, bytes)| bytes).sum::<usize>() + usize::from(page[7]);
    let Some(missing) = (USABLE - begin).checked_sub(filled) else { return };
    // A row begins where another one or a free block ends, or up to three bytes later: smaller gaps are not in the list of blocks.
    let ends = std::iter::once(begin).chain(used.iter().map(|(at, bytes)| at + bytes));
    let is_free = |at: usize| used.iter().all(|(of, bytes)| at + missing <= *of || of + bytes <= at);
    let mut rows = ends.flat_map(|end| end..end + 4).filter(|at| is_free(*at)).filter_map(|at| read(damaged, at));
    if let Some(row) = rows.find(|row| row.bytes == missing) {
        offsets[damaged] = Some(row.at);
    }
}

/// Returns the beginning of the content of a leaf and its free blocks, each with its size; `None` if the list is damaged.
fn free_blocks(page: &Page) -> Option<(usize, Vec<(usize, usize)>)> {
    let begin = word16(page, 5).filter(|begin| (8..=USABLE).contains(begin))?;
    let (mut blocks, mut block) = (Vec::new(), word16(page, 1)?);
    while block != 0 {
        // SQLite refuses to write a page with a free block outside of its content, or with one that is smaller than its header.
        let bytes = word16(page, block + 2).filter(|bytes| *bytes >= 4 && block >= begin && block + bytes <= USABLE)?;
        blocks.push((block, bytes));
        let next = word16(page, block)?;
        if next != 0 && next <= block {
            return None;
        }
        block = next;
    }
    Some((begin, blocks))
}

/// Returns the number of cells with which the content of a leaf adds up: cells, free blocks and fragments fill it from its
/// beginning to the end of the page. There is at most one, as every cell has a size, and none if another byte of the header or of
/// a size is damaged.
fn proven_count(page: &Page) -> Option<usize> {
    let (begin, blocks) = free_blocks(page)?;
    let content = USABLE - begin;
    let mut used = usize::from(page[7]) + blocks.iter().map(|(_, bytes)| bytes).sum::<usize>();
    for count in 0.. {
        if used >= content {
            return (used == content).then_some(count);
        }
        // An offset must point into the content, not into the list of offsets.
        let offset = word16(page, 8 + 2 * count).filter(|offset| *offset >= begin && 10 + 2 * count <= begin);
        used += cell_bytes(page, offset?)?;
    }
    None
}

/// Changes a damaged leaf of a table so that SQLite can read it, by dropping the rows that SQLite cannot parse: a row at a wrong
/// offset, with an impossible length, out of order, or whose columns do not fill it. The others stay as they are, damaged or not.
/// Returns whether the page is a leaf.
pub(crate) fn tidy_leaf(bytes: &mut [u8]) -> bool {
    let Ok(page) = <Page>::try_from(Box::<[u8]>::from(&bytes[..])) else { return false };
    let proven = proven_count(&page);
    if page[0] != TABLE_LEAF && proven.is_none_or(|count| count == 0 || word16(&page, 3) != Some(count)) {
        return false;
    }
    let call_ids = cells(&page, false);
    let found: Vec<Cell> = call_ids.iter().enumerate().filter_map(|(number, at)| read_cell(&page, number, (*at)?)).collect();
    let kept = within(&page, in_order(apart(&page, found)));
    let is_whole = kept.len() == call_ids.len() && proven == Some(call_ids.len()) && page[0] == TABLE_LEAF;
    if is_whole && word16(&page, 3) == proven {
        return true;
    }
    bytes.fill(0);
    bytes[0] = TABLE_LEAF;
    bytes[3..5].copy_from_slice(&(kept.len() as u16).to_be_bytes());
    let mut end = USABLE;
    for (number, cell) in kept.iter().enumerate() {
        end -= cell.bytes;
        bytes[end..end + cell.bytes].copy_from_slice(&page[cell.at..cell.at + cell.bytes]);
        bytes[8 + 2 * number..10 + 2 * number].copy_from_slice(&(end as u16).to_be_bytes());
    }
    bytes[5..7].copy_from_slice(&(end as u16).to_be_bytes());
    true
}

/// A row of a leaf with its offset and size.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// Position among the rows of the page.
    number: usize,
    at: usize,
    bytes: usize,
    rowid: i64,
    columns: usize,
}

/// Number of columns of `runs`.
const RUN_COLUMNS: usize = 17;

/// Reads a row of a leaf if its columns fill it.
fn read_cell(page: &Page, number: usize, at: usize) -> Option<Cell> {
    let bytes = cell_bytes(page, at)?;
    let CellStart { length, rowid, body } = cell_start(page, at)?;
    let (header, mut next) = varint(&page[..], body)?;
    let end = body.checked_add(usize::try_from(header).ok()?).filter(|end| *end <= at + bytes)?;
    let (mut sum, mut columns) = (header, 0);
    while next < end {
        let (kind, after) = varint(&page[..], next)?;
        sum = sum.checked_add(column_bytes(kind)?)?;
        next = after;
        columns += 1;
    }
    (next == end && sum == length as u64).then_some(Cell { number, at, bytes, rowid, columns })
}

/// Removes overlapping cells: of two, drops the one that does not verify, or the longer one.
fn apart(page: &Page, mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.sort_by_key(|cell| cell.at);
    let mut kept: Vec<Cell> = Vec::new();
    for cell in cells {
        match kept.last() {
            Some(last) if last.at + last.bytes > cell.at => {
                let is_better = (verifies(page, &cell), last.bytes) > (verifies(page, last), cell.bytes);
                if is_better {
                    kept.pop();
                    kept.push(cell);
                }
            }
            _ => kept.push(cell),
        }
    }
    kept
}

/// Returns whether a row has a valid checksum, as far as the page alone shows.
fn verifies(page: &Page, cell: &Cell) -> bool {
    let read = || {
        let CellStart { length, body, .. } = cell_start(page, cell.at)?;
        if local_bytes(length) < length {
            return Some(());
        }
        let values = read_record(page.get(body..body + length)?)?;
        classify(cell.rowid, values).map(drop)
    };
    read().is_some()
}

/// Returns the longest series of cells with ascending row numbers, in page order.
fn in_order(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.sort_by_key(|cell| cell.number);
    // For each cell: the length of the longest series that ends with it, and its predecessor there.
    let mut series: Vec<(usize, Option<usize>)> = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let before = (0..at).rev().filter(|before| cells[*before].rowid < cell.rowid).max_by_key(|before| series[*before].0);
        series.push((before.map_or(1, |before| series[before].0 + 1), before));
    }
    let mut next = (0..cells.len()).max_by_key(|at| series[*at].0);
    let mut kept = Vec::new();
    while let Some(at) = next {
        kept.push(cells[at]);
        next = series[at].1;
    }
    kept.reverse();
    kept
}

/// Drops a first or last cell of `runs` that does not verify: its number may belong to another page, where no lookup would find
/// it. The index of ids then shows it as missing.
fn within(page: &Page, mut cells: Vec<Cell>) -> Vec<Cell> {
    let is_stray = |cell: Option<&Cell>| cell.is_some_and(|cell| cell.columns == RUN_COLUMNS && !verifies(page, cell));
    if is_stray(cells.last()) {
        cells.pop();
    }
    if is_stray(cells.first()) {
        cells.remove(0);
    }
    cells
}

/// The beginning of a cell: the length of its record, its row number, and the offset of the record.
struct CellStart {
    length: usize,
    rowid: i64,
    body: usize,
}

fn cell_start(page: &Page, at: usize) -> Option<CellStart> {
    let (length, at) = varint(&page[..], at)?;
    let (rowid, body) = varint(&page[..], at)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= 1 << 30)?;
    Some(CellStart { length, rowid: rowid as i64, body })
}

/// Returns the number of bytes that a cell takes in a leaf.
fn cell_bytes(page: &Page, at: usize) -> Option<usize> {
    let CellStart { length, body, .. } = cell_start(page, at)?;
    let local = local_bytes(length);
    let end = body + local + if local < length { 4 } else { 0 };
    (end <= USABLE).then_some((end - at).max(4))
}

/// Returns the number of bytes of a row that are on the leaf itself.
fn local_bytes(length: usize) -> usize {
    let (max, min) = (USABLE - 35, (USABLE - 12) * 32 / 255 - 23);
    if length <= max {
        return length;
    }
    let rest = min + (length - min) % (USABLE - 4);
    if rest <= max { rest } else { min }
}

/// Decodes SQLite's varint of up to nine bytes; returns it with the offset behind it.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for offset in 0..8 {
        let byte = *bytes.get(at + offset)?;
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, at + offset + 1));
        }
    }
    Some((value << 8 | u64::from(*bytes.get(at + 8)?), at + 9))
}

/// Returns the number of bytes of a column of a serial type.
fn column_bytes(kind: u64) -> Option<u64> {
    match kind {
        0 | 8 | 9 => Some(0),
        1..=4 => Some(kind),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        _ => Some((kind - 12) / 2),
    }
}

fn read_record(record: &[u8]) -> Option<Vec<Value>> {
    let (header, mut at) = varint(record, 0)?;
    let mut body = usize::try_from(header).ok()?;
    let mut values = Vec::new();
    while at < usize::try_from(header).ok()? {
        let (kind, next) = varint(record, at)?;
        at = next;
        let length = usize::try_from(column_bytes(kind)?).ok()?;
        let bytes = record.get(body..body.checked_add(length)?)?;
        body += length;
        values.push(match kind {
            0 => Value::Null,
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            7 => return None, // no table has such a column
            1..=6 => {
                let first = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
                Value::Integer(bytes.iter().fold(first, |value, byte| value << 8 | i64::from(*byte)))
            }
            _ if kind % 2 == 0 => Value::Blob(bytes.to_vec()),
            _ => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
        });
        if values.len() > 32 {
            return None;
        }
    }
    Some(values)
}

/// Finds the table of a row: the one whose checksum matches.
fn classify(rowid: i64, mut values: Vec<Value>) -> Option<Row> {
    // The first column of each table is its row number, which a record does not repeat.
    match values.first_mut() {
        Some(first @ Value::Null) => *first = Value::Integer(rowid),
        _ => return None,
    }
    let columns = values.as_slice();
    let summed = |of: std::ops::Range<usize>| has_crc(columns.last(), columns.get(of).unwrap_or_default().iter());
    let sealed = |at: usize| columns.get(at).and_then(blob);
    let table = match columns.len() {
        2 if sealed(1).is_some() => "payloads",
        4 if summed(1..3) && matches!(columns[1], Value::Text(_)) => "meta",
        4 if summed(0..3) => "past",
        4 if sealed(2).is_some_and(|data| unseal_bytes("", data).is_ok()) => "outbox",
        4 if matches!(columns[1], Value::Blob(_)) && summed(1..3) => "blobs",
        5 if summed(1..4) => match columns[2] {
            Value::Blob(_) => "timers",
            _ => "attributes",
        },
        6 if sealed(5).is_some_and(|data| unseal::<KindSchemas>("", data).is_ok()) => "kinds",
        7 if summed(1..6) => match columns[1] {
            Value::Integer(_) => "idempotency",
            _ => "deleted",
        },
        9 if is_event(columns) => "events",
        9 if sealed(7).is_some_and(|data| unseal::<Wait>("", data).is_ok()) => "waits",
        10 if summed(1..9) => "ledger",
        13 if sealed(11).is_some_and(|data| unseal::<Task>("", data).is_ok()) => "tasks",
        // Either copy of a run's key restores the other.
        17 if is_run(columns) || sealed(15).is_some_and(|data| unseal::<RunHead>("", data).is_ok()) => "runs",
        _ => return None,
    };
    let is_partial = table == "runs" && !is_run(columns);
    Some(Row { table, values, is_partial })
}

fn blob(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Blob(bytes) => Some(bytes),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}

fn has_crc<'a>(crc: Option<&Value>, values: impl Iterator<Item = &'a Value>) -> bool {
    crc.and_then(integer) == Some(i64::from(row_crc(values.map(ValueRef::from))))
}

fn is_run(columns: &[Value]) -> bool {
    has_crc(columns.last(), [0, 1, 2, 3, 4, 9, 11, 12, 13, 14].iter().map(|at| &columns[*at]))
}

fn is_event(columns: &[Value]) -> bool {
    let number = |at: usize| integer(&columns[at]);
    let last = match &columns[5] {
        Value::Null => None,
        value => integer(value).map(|last| Index(last as u64)),
    };
    let read = || -> Option<bool> {
        let (rk, index, at, count) = (number(1)?, Index(number(2)? as u64), Timestamp(number(3)? as u64), number(4)? as u64);
        Some(number(6)? == i64::from(event_crc(rk, index, at, count, last, blob(&columns[7])?)))
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests;
