//! `onward export` and `onward import`: copy runs between stores as JSON lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use onward_core::api::RunQuery;
use onward_core::run::lost_workers::PAUSE_AFTER_LOST_WORKERS;
use onward_core::transfer::{self, ExportWriter, ExportedRun, FlowRef, Importer};
use onward_core::{ErrorCode, Namespace, RunHead};
use onward_runtime::{Options, RunExporter, Runtime, leaves_out};
use onward_store_embedded::EmbeddedStore;

use super::run::{FilterArgs, Pages};
use super::server::parse_store;
use crate::args::Global;
use crate::connection::{Connection, Endpoint};
use crate::error::{Exit, FAILURE, Mistake, print_one};
use crate::output::{escape, print, print_json, print_stderr};
use crate::serving::{Opened, StoreLocation};

mod target;

use target::{ImportResult, ImportTarget};

const PAGE: usize = 1_000;

/// Number of runs between progress lines.
const PROGRESS_EVERY: u64 = 1_000;

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

/// Direct access to the databases of a server, without a running server.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Use the databases directly: `--store=postgres://…`, or `--store` alone for ONWARD_SERVER__STORE, which hides the password
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["server", "data"])]
    store: Option<String>,
}

impl StoreArgs {
    /// Opens the named databases without background jobs; `None` without `--store`. Creates missing tables if `makes` is set.
    async fn open(&self, global: &Global, makes: bool) -> Result<Option<Runtime>> {
        let Some(urls) = self.urls(global)? else { return Ok(None) };
        let opened = match makes {
            true => Opened::open(StoreLocation::Databases(urls), PAUSE_AFTER_LOST_WORKERS).await?,
            false => Opened::open_to_read(&urls).await?,
        };
        Ok(Some(Runtime::new(opened.store, opened.clock, Options::default())))
    }

    fn urls(&self, global: &Global) -> Result<Option<Vec<String>>> {
        let Some(named) = &self.store else { return Ok(None) };
        let setting = || global.config.text("server.store").unwrap_or_default();
        let url = if named.is_empty() { setting() } else { named.clone() };
        if url.is_empty() {
            let hint = "set `--store=postgres://…` or ONWARD_SERVER__STORE";
            return Err(Mistake::usage(ErrorCode::Usage, "no store is set", hint).into());
        }
        match parse_store(&url)? {
            StoreLocation::Databases(urls) => Ok(Some(urls)),
            StoreLocation::Directory(_) | StoreLocation::Memory => {
                let message = "`--store` takes only PostgreSQL URLs";
                Err(Mistake::usage(ErrorCode::StoreUnsupported, message, "name a directory with `--data DIR`").into())
            }
        }
    }
}

/// An export in progress.
struct Export<'a> {
    connection: &'a Connection,
    json: bool,
    exporter: RunExporter<'a>,
    writer: ExportWriter,
    count: u64,
    left_out: u64,
}

pub async fn export(args: ExportArgs, global: &Global) -> Result<()> {
    let (connection, is_incomplete) = match args.store.open(global, false).await? {
        Some(runtime) => (Connection::of(runtime, global)?, false),
        None => (Connection::to_read(global).await?, is_incomplete(global)?),
    };
    export_from(&connection, args, global).await?;
    // Runs that a damaged write-ahead log lost are missing from the list.
    succeed_if(!is_incomplete)
}

/// Exits with a failure that was already printed, unless `is_complete`.
fn succeed_if(is_complete: bool) -> Result<()> {
    if is_complete { Ok(()) } else { Err(Exit(FAILURE).into()) }
}

/// Returns whether acknowledged writes may be missing from a damaged directory. Opening it printed a warning.
fn is_incomplete(global: &Global) -> Result<bool> {
    match Endpoint::of(global)? {
        Endpoint::Directory(path) => Ok(EmbeddedStore::has_lost_writes(path)?),
        Endpoint::Server { .. } => Ok(false),
    }
}

async fn export_from(connection: &Connection, args: ExportArgs, global: &Global) -> Result<()> {
    let (exporter, writer) = (RunExporter::new(&**connection), ExportWriter::default());
    let mut export = Export { connection, json: global.json, exporter, writer, count: 0, left_out: 0 };
    if args.ids.is_empty() {
        export.found(args.filter.query(connection.namespace.clone(), PAGE)?).await
    } else {
        export.named(&args.ids).await
    }
}

impl Export<'_> {
    async fn named(&mut self, ids: &[String]) -> Result<()> {
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

    async fn found(&mut self, query: RunQuery) -> Result<()> {
        let mut pages = Pages::new(query);
        let mut page = pages.next(self.connection).await?;
        put(&transfer::header())?;
        while let Some(runs) = page {
            self.runs(&runs).await?;
            page = pages.next(self.connection).await?;
        }
        self.end()
    }

    /// Writes runs. Reports and leaves out a run that cannot be read.
    async fn runs(&mut self, heads: &[RunHead]) -> Result<()> {
        for head in heads {
            match self.exporter.read(&head.key).await {
                Ok(run) => {
                    put(&self.writer.run(&run))?;
                    self.count += 1;
                    print_count(self.count, "exported");
                }
                // Deleted since it was listed.
                Err(error) if error.code() == ErrorCode::RunNotFound => {}
                Err(error) if leaves_out(&error) => {
                    let left_out = transfer::LeftOut { key: head.key.clone(), code: error.code().to_owned() };
                    put(&left_out.to_line())?;
                    print_one(&error.into(), self.json);
                    self.left_out += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<()> {
        put(&self.writer.footer(None))?;
        succeed_if(self.left_out == 0)
    }
}

fn put(lines: &str) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(lines.as_bytes())?)
}

fn print_count(count: u64, what: &str) {
    if count.is_multiple_of(PROGRESS_EVERY) {
        print_stderr(&format!("{count} runs {what} so far"));
    }
}

pub async fn import(args: ImportArgs, global: &Global) -> Result<()> {
    let source: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?)
    };
    let mut target = ImportTarget::new(global, args.store.open(global, true).await?).await?;
    let (mut importer, mut bytes, mut count) = (Importer::default(), 0, 0);
    for line in BufReader::new(source).lines() {
        let line = line?;
        bytes += line.len();
        let Some(run) = importer.take(&line).map_err(|error| mistake(&error))? else { continue };
        check_namespace(&run, target.namespace())?;
        target.add(run, std::mem::take(&mut bytes)).await?;
        count += 1;
        print_count(count, "read");
    }
    importer.finish().map_err(|error| mistake(&error))?;
    let taken = target.finish().await?;
    for left_out in importer.left_out() {
        print_stderr(&format!(
            "{} was left out of the export: {}",
            escape::text(left_out.key.id.as_str()),
            escape::text(&left_out.code)
        ));
    }
    if let Some(next) = importer.next() {
        let how = format!("get the next page with GET /v1/export?cursor={next}, or all runs with `onward export`");
        print_stderr(&format!("warning: this file is one page of several and does not have all runs: {}", escape::text(&how)));
    }
    print_result(&taken, global)
}

/// Fails if the run is in another namespace: like a server, one command works in one namespace.
fn check_namespace(run: &ExportedRun, namespace: &Namespace) -> Result<(), Mistake> {
    if run.key.namespace == *namespace {
        return Ok(());
    }
    let message = format!("run {} is in another namespace than `{namespace}`", run.key);
    let hint = format!("import with `--namespace {}`", run.key.namespace);
    Err(Mistake::new(ErrorCode::NotAllowed, message, Some(&hint)))
}

fn print_result(all: &ImportResult, global: &Global) -> Result<()> {
    if global.json {
        print_json(all)?;
    } else {
        print(&format!("{} runs imported, {} already existed", all.created.len(), all.unchanged.len()))?;
        for FlowRef { flow, version } in &all.flows {
            let flow = escape::text(flow.as_str());
            print_stderr(&format!("version {version} of flow {flow} was stored for these runs; new runs do not use it"));
        }
        for refused in &all.refused {
            print_stderr(&format!("{} was refused: {}", escape::text(refused.run.as_str()), escape::text(&refused.code)));
        }
    }
    if all.refused.iter().any(|refused| refused.code == ErrorCode::BodyTooLarge) {
        let hint = "stop the server and import with `onward --data DIR import FILE`, or into its databases with `--store`";
        print_stderr(&format!("hint: {hint}"));
    }
    succeed_if(all.refused.is_empty())
}

fn mistake(error: &transfer::TransferError) -> Mistake {
    let hint = "correct the file and import it again; imported runs stay unchanged";
    Mistake::new(ErrorCode::ImportInvalid, format!("the file cannot be imported: {error}"), Some(hint))
}
