//! A checksum in every page of the database file, verified whenever a page is read.
//!
//! Owns the layer between SQLite and the operating system: a VFS that forwards every call, writes a checksum into the last eight
//! bytes of each page of the database file (SQLite leaves them free) and verifies it on reads. A changed byte in an index, which
//! would otherwise hide a row silently, thus becomes an error of the query that reads it. Pages in the write-ahead log have its
//! checksums until they are copied into the database. Must never change what SQLite sees of a page.
//!
//! Invariants:
//! - I1: a page of the database file with a wrong checksum is never passed to SQLite, except for leaves of tables: their rows
//!   have checksums of their own (I2) and are found through indexes, so that one changed byte affects one row and not its
//!   neighbors. SQLite gets such a leaf without the rows that it could not read.
//!
//! A page without a checksum (eight zeros) is accepted as it is: SQLite's own tools write such pages when they copy a database.
//! SQLite also sees zeros there, so that a page that such a tool copies out of the write-ahead log has no checksum rather than a
//! wrong one.
#![allow(unsafe_code, reason = "a layer between SQLite and the file system is made of C functions")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};

use crate::repair::salvage::tidy_leaf;

pub(crate) const PAGE_BYTES: usize = 8192;
/// Bytes at the end of each page that SQLite leaves free.
pub(crate) const SUM_BYTES: usize = 8;

/// Name of the VFS that connections use.
pub(crate) const VFS: &CStr = c"onward";

/// Mark of a page with a checksum.
pub(crate) const MARK: [u8; 4] = *b"Onw1";
/// Ranges that SQLite's backup changes in the first page of a copy: file versions, change counter, schema cookie, library
/// version.
const VOLATILE: [std::ops::Range<usize>; 4] = [18..20, 24..28, 40..44, 92..100];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    Right,
    Missing,
    Wrong,
}

/// Returns the checksum of page `number` (1, 2, …), which it covers: a page in the wrong position is damaged.
fn sum(number: u64, page: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    let content = &page[..PAGE_BYTES - SUM_BYTES];
    if number == 1 {
        let mut from = 0;
        for skipped in VOLATILE {
            hasher.update(&content[from..skipped.start]);
            from = skipped.end;
        }
        hasher.update(&content[from..]);
    } else {
        hasher.update(content);
    }
    let mut sum = [0; SUM_BYTES];
    sum[..4].copy_from_slice(&hasher.finalize().to_le_bytes());
    sum[4..].copy_from_slice(&MARK);
    sum
}

/// Compares page `number` with its checksum.
pub(crate) fn check(number: u64, page: &[u8]) -> Sum {
    let stored = &page[PAGE_BYTES - SUM_BYTES..];
    if stored == [0; SUM_BYTES] {
        Sum::Missing
    } else if stored == sum(number, page) {
        Sum::Right
    } else {
        Sum::Wrong
    }
}

/// Returns the pages of a database file with a wrong checksum. Another process may be writing: a page is read up to three times.
pub(crate) fn damaged_pages(path: &std::path::Path) -> std::io::Result<Vec<u64>> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path)?;
    let mut page = vec![0; PAGE_BYTES];
    let mut damaged = Vec::new();
    for number in 1..=file.metadata()?.len() / PAGE_BYTES as u64 {
        let mut is_wrong = || {
            Ok::<_, std::io::Error>({
                file.read_exact_at(&mut page, (number - 1) * PAGE_BYTES as u64)?;
                check(number, &page) == Sum::Wrong
            })
        };
        if is_wrong()? && is_wrong()? && is_wrong()? {
            damaged.push(number);
        }
    }
    Ok(damaged)
}

thread_local! {
    static DAMAGED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Takes the number of the page that this thread was refused last.
pub(crate) fn take_damaged() -> Option<u64> {
    DAMAGED.take()
}

/// The VFS that calls are forwarded to: the default at the time of registration, even if the default changes later.
static BENEATH: AtomicPtr<sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());

/// Registers the VFS with SQLite.
pub(crate) fn register() {
    static REGISTERED: OnceLock<()> = OnceLock::new();
    REGISTERED.get_or_init(|| {
        // SAFETY: `sqlite3_vfs_find` initializes SQLite and returns its default VFS, which is never freed. The copy is leaked, as
        // SQLite keeps a pointer to it. All its functions but `xOpen` are the default's own; they use only fields that were
        // copied.
        unsafe {
            let default = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!default.is_null(), "SQLite has a default VFS");
            BENEATH.store(default, Ordering::Release);
            let mut ours = *default;
            ours.zName = VFS.as_ptr();
            ours.pNext = std::ptr::null_mut();
            ours.szOsFile = (*default).szOsFile + HEAD as c_int;
            ours.xOpen = Some(open);
            assert_eq!(ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 0), ffi::SQLITE_OK);
        }
    });
}

/// Our part of an open file; that of the default VFS follows in the same allocation, which SQLite makes.
#[repr(C, align(16))]
struct Checked {
    base: sqlite3_file,
}

const HEAD: usize = size_of::<Checked>();

/// SAFETY of all calls: `file` is the start of the memory that SQLite gave to `open` for a database file, and it was opened.
unsafe fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    unsafe { file.cast::<u8>().add(HEAD).cast() }
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes memory of `szOsFile` bytes, which is enough for either layout, and the VFS beneath is never freed.
    unsafe {
        let default = BENEATH.load(Ordering::Acquire);
        let Some(open) = (*default).xOpen else { return ffi::SQLITE_ERROR };
        if flags & ffi::SQLITE_OPEN_MAIN_DB == 0 {
            return open(default, name, file, flags, out);
        }
        (*file).pMethods = std::ptr::null();
        (*real(file)).pMethods = std::ptr::null();
        let code = open(default, name, real(file), flags, out);
        if !(*real(file)).pMethods.is_null() {
            (*file).pMethods = &METHODS;
        }
        code
    }
}

/// Forwards to the method of the same name of the default VFS.
macro_rules! hand_on {
    ($($ours:ident = $theirs:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)*) => {
        $(unsafe extern "C" fn $ours(file: *mut sqlite3_file $(, $arg: $type)*) $(-> $out)? {
            // SAFETY: SQLite calls the methods of a file that `open` has opened; the default VFS has every method of version 2.
            unsafe {
                let file = real(file);
                ((*(*file).pMethods).$theirs.unwrap_unchecked())(file $(, $arg)*)
            }
        })*
    };
}

hand_on! {
    close = xClose() -> c_int;
    read_plain = xRead(into: *mut c_void, amount: c_int, offset: i64) -> c_int;
    write_plain = xWrite(from: *const c_void, amount: c_int, offset: i64) -> c_int;
    truncate = xTruncate(size: i64) -> c_int;
    sync = xSync(flags: c_int) -> c_int;
    file_size = xFileSize(size: *mut i64) -> c_int;
    lock = xLock(level: c_int) -> c_int;
    unlock = xUnlock(level: c_int) -> c_int;
    check_reserved_lock = xCheckReservedLock(out: *mut c_int) -> c_int;
    file_control = xFileControl(op: c_int, arg: *mut c_void) -> c_int;
    sector_size = xSectorSize() -> c_int;
    device_characteristics = xDeviceCharacteristics() -> c_int;
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int;
    shm_lock = xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    shm_barrier = xShmBarrier();
    shm_unmap = xShmUnmap(delete: c_int) -> c_int;
}

/// Version 2: no memory-mapped reads, whose checksums could not be verified.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Returns the number of the page at `offset` if one whole page is read or written.
fn page_number(amount: c_int, offset: i64) -> Option<u64> {
    let whole = amount as usize == PAGE_BYTES && offset >= 0 && offset % PAGE_BYTES as i64 == 0;
    whole.then(|| offset as u64 / PAGE_BYTES as u64 + 1)
}

unsafe extern "C" fn read(file: *mut sqlite3_file, into: *mut c_void, amount: c_int, offset: i64) -> c_int {
    // SAFETY: as `hand_on`; `into` has room for `amount` bytes, all of which the default VFS has written if it returns these
    // codes.
    unsafe {
        let code = read_plain(file, into, amount, offset);
        let Some(number) = page_number(amount, offset) else { return code };
        if code == ffi::SQLITE_IOERR_SHORT_READ {
            return short_read(file, number, offset);
        }
        if code != ffi::SQLITE_OK {
            return code;
        }
        let page = std::slice::from_raw_parts_mut(into.cast::<u8>(), PAGE_BYTES);
        if check(number, page) == Sum::Wrong && (number == 1 || !tidy_leaf(page)) {
            DAMAGED.set(Some(number));
            return ffi::SQLITE_CORRUPT; // I1
        }
        page[PAGE_BYTES - SUM_BYTES..].fill(0);
        ffi::SQLITE_OK
    }
}

/// Distinguishes a read behind the end of the file, which is normal, from one of a truncated page, which is damage (F8).
unsafe fn short_read(file: *mut sqlite3_file, number: u64, offset: i64) -> c_int {
    let mut size = 0;
    // SAFETY: as `hand_on`.
    let code = unsafe { file_size(file, &mut size) };
    if code != ffi::SQLITE_OK || size <= offset {
        return if code == ffi::SQLITE_OK { ffi::SQLITE_IOERR_SHORT_READ } else { code };
    }
    DAMAGED.set(Some(number));
    if size < offset + PAGE_BYTES as i64 { ffi::SQLITE_CORRUPT } else { ffi::SQLITE_IOERR_READ }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, amount: c_int, offset: i64) -> c_int {
    // SAFETY: as `hand_on`; `from` holds `amount` bytes.
    unsafe {
        let Some(number) = page_number(amount, offset) else { return write_plain(file, from, amount, offset) };
        let mut page = [0; PAGE_BYTES];
        page.copy_from_slice(std::slice::from_raw_parts(from.cast::<u8>(), PAGE_BYTES));
        let sum = sum(number, &page);
        page[PAGE_BYTES - SUM_BYTES..].copy_from_slice(&sum);
        write_plain(file, page.as_ptr().cast(), amount, offset)
    }
}

#[cfg(test)]
mod tests;
