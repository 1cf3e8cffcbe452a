//! Statements and connections.
//!
//! Owns the way SQL is sent: unnamed statements with explicit types, so that nothing stays on a connection and a pooler may use
//! another one for each transaction. Statements of every batch are functions of the database, whose plans each session caches
//! (ADR 0014). Must never leave a setting, a lock or a prepared statement on a session.

use std::rc::Rc;

use futures_util::future::join_all;
use onward_core::RunKey;
use onward_store::StoreError;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Error, Row};

use crate::connection::open::{Connector, Counted};
use crate::connection::timeout::{TimeLimit, Watch, carry};
use crate::error::Outcome;

/// A statement with its values.
pub(crate) struct Sql {
    text: String,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Sql {
    pub fn new(text: impl Into<String>) -> Sql {
        Sql { text: text.into(), values: Vec::new() }
    }

    /// Creates a call of a database function, for [`Sql::all`].
    pub fn call(function: &str) -> Sql {
        Sql::new(format!("onward.{function}"))
    }

    /// Combines calls into one statement, which runs them in this order.
    pub fn all(calls: Vec<Sql>) -> Sql {
        let mut all = Sql::new("SELECT ");
        for call in calls {
            let first = all.values.len() + 1;
            let marks: Vec<String> = (first..first + call.values.len()).map(|number| format!("${number}")).collect();
            let comma = if first > 1 { ", " } else { "" };
            all.text += &format!("{comma}{}({})", call.text, marks.join(", "));
            all.values.extend(call.values);
        }
        all
    }

    fn with(mut self, value: impl ToSql + Sync + Send + 'static, kind: Type) -> Sql {
        self.values.push((Box::new(value), kind));
        self
    }

    /// Appends text; `?` stands for the value that is added next.
    pub fn also(mut self, text: &str) -> Sql {
        let mark = format!("${}", self.values.len() + 1);
        self.text.push_str(&text.replace('?', &mark));
        self
    }

    pub fn text(self, value: impl Into<String>) -> Sql {
        self.with(value.into(), Type::TEXT)
    }

    /// Adds the two values of a run's key.
    pub fn key(self, key: &RunKey) -> Sql {
        self.text(key.namespace.as_str()).text(key.id.as_str())
    }
}

/// Declares the functions that add a value, by the type of the value and the type of the database.
macro_rules! values {
    ($($name:ident($value:ty) $kind:ident;)*) => {
        impl Sql {
            $(pub fn $name(self, value: $value) -> Sql {
                self.with(value, Type::$kind)
            })*
        }
    };
}

values! {
    number(i64) INT8;
    int(i32) INT4;
    small(i16) INT2;
    flag(bool) BOOL;
    bytes(Vec<u8>) BYTEA;
    texts(Vec<String>) TEXT_ARRAY;
    maybe_texts(Vec<Option<String>>) TEXT_ARRAY;
    numbers(Vec<i64>) INT8_ARRAY;
    maybe_numbers(Vec<Option<i64>>) INT8_ARRAY;
    ints(Vec<i32>) INT4_ARRAY;
    smalls(Vec<i16>) INT2_ARRAY;
    flags(Vec<bool>) BOOL_ARRAY;
    byteses(Vec<Vec<u8>>) BYTEA_ARRAY;
}

/// A connection. When it is dropped or breaks, the server rolls its open transaction back.
pub(crate) struct Db {
    client: Client,
    watch: Rc<Watch>,
    _counted: Counted,
}

impl Db {
    pub async fn connect(connector: &Connector) -> Outcome<Db> {
        Db::connect_with(connector, |_| {}).await
    }

    /// Opens a connection that receives the notifications on our channel.
    pub async fn listening(connector: &Connector) -> Outcome<(Db, UnboundedReceiver<String>)> {
        let (db, payloads) = Db::without_listen(connector).await?;
        db.execute("LISTEN onward").await?;
        Ok((db, payloads))
    }

    /// Opens a connection without LISTEN; the receiver stays open as long as the connection.
    pub async fn without_listen(connector: &Connector) -> Outcome<(Db, UnboundedReceiver<String>)> {
        let (to, payloads) = unbounded_channel();
        let forward = move |message| {
            if let AsyncMessage::Notification(notification) = message {
                let _ = to.send(notification.payload().to_owned());
            }
        };
        Ok((Db::connect_with(connector, forward).await?, payloads))
    }

    async fn connect_with(connector: &Connector, on_message: impl FnMut(AsyncMessage) + 'static) -> Outcome<Db> {
        let (client, connection, _counted) = connector.connect().await?;
        let watch = Watch::new(connector.silence_timeout);
        // Ends with the client, or with an error that the client's next call returns.
        tokio::task::spawn_local(carry(connection, watch.clone(), on_message));
        Ok(Db { client, watch, _counted })
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns the error to report if the connection was dropped because the database was silent for too long.
    pub fn silence(&self) -> Option<StoreError> {
        let seconds = self.watch.limit.as_secs_f32();
        self.watch.was_silent.get().then(|| StoreError::Unavailable { why: format!("no response for {seconds} s") })
    }

    /// Sets the time limit of the statements that follow.
    pub fn set_time_limit(&self, time_limit: TimeLimit) {
        self.watch.set_time_limit(time_limit);
    }

    /// Runs `work` with this time limit for its statements.
    pub async fn with<T>(&self, time_limit: TimeLimit, work: impl Future<Output = T>) -> T {
        let before = self.watch.set_time_limit(time_limit);
        let done = work.await;
        self.watch.set_time_limit(before);
        done
    }

    pub async fn query(&self, sql: &Sql) -> Result<Vec<Row>, Error> {
        let _wait = self.watch.wait();
        let values: Vec<(&(dyn ToSql + Sync), Type)> =
            sql.values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        self.client.query_typed(&sql.text, &values).await
    }

    /// Executes statements without values and discards their results.
    pub async fn execute(&self, text: &str) -> Result<(), Error> {
        let _wait = self.watch.wait();
        self.client.batch_execute(text).await
    }

    /// Sends `first`, the statements and `last` at once and waits for all results. Returns the first error: the server skips
    /// everything after it, and COMMIT rolls back.
    pub async fn pipeline(&self, first: Option<&str>, statements: &[Sql], last: Option<&str>) -> Result<Vec<Vec<Row>>, Error> {
        let execute = async |text: Option<&str>| match text {
            Some(text) => self.execute(text).await,
            None => Ok(()),
        };
        let rows = join_all(statements.iter().map(|sql| self.query(sql)));
        let (begun, rows, ended) = tokio::join!(biased; execute(first), rows, execute(last));
        begun?;
        let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
        ended?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
