//! The conversation of an agent over gRPC.

use onward_core::Name;
use onward_core::conversation::MESSAGE;
use onward_runtime::{AppendEntry, AppendedEntry, BranchRun, Client, EntryPage, EntryQuery, Runtime, RuntimeError, SendSignal};
use onward_wire::api;

use super::Asker;
use super::calls::{Answer, acted_on, appended, own, told};
use super::problem::status_of;
use crate::Server;
use crate::handlers::attachments::{self, KeptAttachment};
use crate::handlers::entries::{branch_entry, branch_point, check_role, cursor};

pub(super) async fn read_entries(server: Server, asker: Asker, request: api::EntriesRequest) -> Answer<api::EntriesReply> {
    let api::EntriesRequest { run, leaf, before, limit } = request;
    let read = |text: Option<String>| text.as_deref().map(cursor).transpose().map_err(|problem| status_of(&problem));
    let query = EntryQuery { leaf: read(leaf)?, before: read(before)?, limit: limit as usize };
    let page = server.runtime().read_entries(&own(&asker, run)?, query).await.map_err(told)?;
    let EntryPage { entries, before, leaf, depth, pending } = page;
    Ok(api::EntriesReply { entries, before: before.map(|before| before.to_string()), leaf, depth, pending })
}

pub(super) async fn append_entry(
    server: Server,
    asker: Asker,
    request: api::AppendEntryRequest,
) -> Answer<api::AppendEntryReply> {
    let api::AppendEntryRequest { run, role, content, idempotency_key, is_looked_up } = request;
    check_role(&role, Some(&asker.pass), &server).await.map_err(|problem| status_of(&problem))?;
    let (key, append) = (acted_on(&server, &asker, run).await?, AppendEntry { role, content, idempotency_key });
    let runtime = server.runtime();
    let appended = match is_looked_up {
        true => Client::put_entry(runtime, key, append).await,
        false => runtime.append_entry(&key, append).await,
    };
    let AppendedEntry { already_existed, woke, entry, index, at } = appended.map_err(told)?;
    Ok(api::AppendEntryReply { already_existed, woke, entry, index, at })
}

pub(super) async fn branch_run(server: Server, asker: Asker, request: api::BranchRunRequest) -> Answer<api::AppendReply> {
    let api::BranchRunRequest { run, from, role, content, idempotency_key } = request;
    let from = from.as_deref().map(branch_point).transpose().map_err(|problem| status_of(&problem))?;
    let entry = branch_entry(role, content).map_err(|problem| status_of(&problem))?;
    if let Some(entry) = &entry {
        check_role(&entry.role, Some(&asker.pass), &server).await.map_err(|problem| status_of(&problem))?;
    }
    let branch = BranchRun { from, entry, idempotency_key };
    let key = acted_on(&server, &asker, run).await?;
    server.runtime().branch_run(&key, branch).await.map(appended).map_err(told)
}

pub(super) async fn send_message(server: Server, asker: Asker, request: api::MessageRequest) -> Answer<api::AppendReply> {
    let api::MessageRequest { run, content, message_id, signal } = request;
    Runtime::check_message(&content).map_err(told)?;
    let name = signal.map_or_else(|| Name::new(MESSAGE), Ok).map_err(|error| told(RuntimeError::from(error)))?;
    let signal = SendSignal { name, payload: content, signal_id: message_id, sender: None };
    let key = acted_on(&server, &asker, run).await?;
    server.runtime().signal_run(&key, signal).await.map(appended).map_err(told)
}

pub(super) async fn put_attachment(
    server: Server,
    _: Asker,
    request: api::PutAttachmentRequest,
) -> Answer<api::PutAttachmentReply> {
    let kept = attachments::keep(&server, request.content.data().clone()).await;
    let KeptAttachment { hash, bytes } = kept.map_err(|error| status_of(&error.into()))?;
    Ok(api::PutAttachmentReply { hash, bytes })
}
