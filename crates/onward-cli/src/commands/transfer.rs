//! `onward export` and `onward import`: copy runs between stores as JSON lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onward_core::api::RunQuery;
use onward_core::transfer::{self, ExportedRun, Importer};
use onward_core::{Namespace, RunHead};
use onward_runtime::{export_run, leaves_out};
use onward_store_embedded::EmbeddedStore;

use super::run::FilterArgs;
use crate::args::Global;
use crate::connection::{Connection, Endpoint};
use crate::error::{FAILURE, Mistake, NOT_ALLOWED, print_one};
use crate::output::{escape, print, print_json, say};

mod store;
mod target;

use store::StoreArgs;
use target::{ImportResult, ImportTarget};

const PAGE: usize = 1_000;

/// Number of runs between progress lines.
const TELL_EVERY: u64 = 1_000;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Run ids [default: all runs that match the filter]
    ids: Vec<String>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Exported file, or `-` for stdin
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

/// An export in progress.
struct Export<'a> {
    connection: &'a Connection,
    json: bool,
    count: u64,
    left_out: u64,
}

pub async fn export(args: ExportArgs, global: &Global) -> Result<ExitCode> {
    let (connection, is_incomplete) = match args.store.open_to_read(global).await? {
        Some(runtime) => (Connection::of(runtime, global)?, false),
        None => (Connection::to_read(global)?, is_incomplete(global)?),
    };
    let code = export_from(&connection, args, global).await?;
    // Runs that a damaged write-ahead log lost are missing from the list.
    Ok(if is_incomplete { ExitCode::FAILURE } else { code })
}

/// Returns whether acknowledged writes may be missing from a damaged directory. Opening it printed a warning.
fn is_incomplete(global: &Global) -> Result<bool> {
    match Endpoint::of(global)? {
        Endpoint::Directory(path) => Ok(EmbeddedStore::has_lost_writes(path)?),
        Endpoint::Server { .. } => Ok(false),
    }
}

async fn export_from(connection: &Connection, args: ExportArgs, global: &Global) -> Result<ExitCode> {
    let mut export = Export { connection, json: global.json, count: 0, left_out: 0 };
    if args.ids.is_empty() {
        export.found(args.filter.query(connection.namespace.clone(), PAGE)?).await
    } else {
        export.named(&args.ids).await
    }
}

impl Export<'_> {
    async fn named(&mut self, ids: &[String]) -> Result<ExitCode> {
        let mut heads = Vec::new();
        for id in ids {
            heads.push(self.connection.read_head(self.connection.key(id)?).await?);
        }
        // The order of lists, newest first, so that children come before their parents.
        heads.sort_by(|a, b| (b.created_at, &b.key.id).cmp(&(a.created_at, &a.key.id)));
        heads.dedup_by(|a, b| a.key == b.key);
        put(&transfer::header())?;
        self.runs(&heads).await?;
        self.end()
    }

    async fn found(&mut self, mut query: RunQuery) -> Result<ExitCode> {
        let mut page = self.connection.list_runs(query.clone()).await?;
        put(&transfer::header())?;
        loop {
            self.runs(&page.runs).await?;
            query.cursor = page.next;
            if query.cursor.is_none() {
                return self.end();
            }
            page = self.connection.list_runs(query.clone()).await?;
        }
    }

    /// Writes runs. Reports and leaves out a run that cannot be read.
    async fn runs(&mut self, heads: &[RunHead]) -> Result<()> {
        for head in heads {
            match export_run(&**self.connection, &head.key).await {
                Ok(run) => {
                    put(&run.to_lines())?;
                    self.count += 1;
                    print_count(self.count, "exported");
                }
                // Deleted since it was listed.
                Err(error) if error.code() == "run_not_found" => {}
                Err(error) if leaves_out(&error) => {
                    let left = transfer::LeftOut { key: head.key.clone(), code: error.code().to_owned() };
                    put(&left.to_line())?;
                    print_one(&error.into(), self.json);
                    self.left_out += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<ExitCode> {
        put(&transfer::footer(self.count, None))?;
        Ok(if self.left_out == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn put(lines: &str) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(lines.as_bytes())?)
}

fn print_count(count: u64, what: &str) {
    if count.is_multiple_of(TELL_EVERY) {
        say(&format!("{count} runs {what} so far"));
    }
}

pub async fn import(args: ImportArgs, global: &Global) -> Result<ExitCode> {
    let source: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?)
    };
    let namespace = global.namespace()?;
    let mut target = ImportTarget::new(global, args.store.open(global).await?)?;
    let (mut importer, mut bytes, mut count) = (Importer::default(), 0, 0);
    for line in BufReader::new(source).lines() {
        let line = line?;
        bytes += line.len();
        let Some(run) = importer.take(&line).map_err(|error| mistake(&error))? else { continue };
        check_namespace(&run, &namespace)?;
        target.add(run, std::mem::take(&mut bytes)).await?;
        count += 1;
        print_count(count, "read");
    }
    importer.finish().map_err(|error| mistake(&error))?;
    let taken = target.finish().await?;
    for left in importer.left_out() {
        say(&format!("{} was left out of the export: {}", escape::text(left.key.id.as_str()), escape::text(&left.code)));
    }
    if let Some(next) = importer.next() {
        let how = format!("get the next page with GET /v1/export?cursor={next}, or all runs with `onward export`");
        say(&format!("warning: this file is one page of several and does not have all runs: {}", escape::text(&how)));
    }
    tell(&taken, global)
}

/// Fails if the run is in another namespace: like a server, one command works in one namespace.
fn check_namespace(run: &ExportedRun, namespace: &Namespace) -> Result<(), Mistake> {
    if run.key.namespace == *namespace {
        return Ok(());
    }
    let message = format!("run {} is in another namespace than `{namespace}`", run.key);
    let hint = Some(format!("import with `--namespace {}`", run.key.namespace));
    Err(Mistake { code: "not_allowed", message, hint, exit: NOT_ALLOWED })
}

fn tell(all: &ImportResult, global: &Global) -> Result<ExitCode> {
    if global.json {
        print_json(all)?;
    } else {
        print(&format!("{} runs imported, {} already existed", all.created.len(), all.unchanged.len()))?;
        for refused in &all.refused {
            say(&format!("{} was refused: {}", escape::text(refused.run.as_str()), escape::text(&refused.code)));
        }
    }
    if all.refused.iter().any(|refused| refused.code == "body_too_large") {
        let hint = "stop the server and import with `onward --data DIR import FILE`, or into its databases with `--store`";
        say(&format!("hint: {hint}"));
    }
    Ok(if all.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn mistake(error: &transfer::TransferError) -> Mistake {
    let hint = Some("correct the file and import it again; imported runs stay unchanged".to_owned());
    Mistake { code: "import_invalid", message: format!("the file cannot be imported: {error}"), hint, exit: FAILURE }
}
