//! Figures of the operating system about processes and files.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

/// Returns the processor time of all threads so far.
pub fn cpu() -> Duration {
    // SAFETY: `rusage` is plain data that the call fills in.
    #[expect(unsafe_code, reason = "getrusage has no safe wrapper in the standard library")]
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// Returns the bytes that this process has written to the disk so far.
pub fn bytes_written() -> u64 {
    field("/proc/self/io", "write_bytes:")
}

/// Returns the resident memory in bytes.
pub fn resident() -> u64 {
    field("/proc/self/status", "VmRSS:") * 1_024
}

/// Returns the resident memory of another process in bytes.
pub fn resident_of(process: u32) -> u64 {
    field(&format!("/proc/{process}/status"), "VmRSS:") * 1_024
}

/// Returns the processor time of another process so far.
pub fn cpu_of(process: u32) -> Duration {
    ticks(process, 2)
}

/// Returns the sum of the first `count` times of a process: user and system, then those of its reaped children.
fn ticks(process: u32, count: usize) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in parentheses may contain blanks; the times begin with the 12th word behind it.
    let words = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks: u64 = words.split_whitespace().skip(11).take(count).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Returns the processor time of a process, its children, and its reaped children.
pub fn cpu_of_family(process: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let living: Duration = children.split_whitespace().filter_map(|child| child.parse().ok()).map(cpu_of).sum();
    ticks(process, 4) + living
}

fn field(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the total size of the files of a directory.
pub fn disk_bytes(directory: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(directory)? {
        total += entry?.metadata()?.len();
    }
    Ok(total)
}

/// Returns the median of `values`.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the value below which `part` of all values lie.
pub fn percentile(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
