//! The servers that share the database, broadcasts to all of them, and the shard that the database holds.

use std::time::Duration;

use onward_core::{Name, Timestamp};
use onward_store::durable::seal::damaged;
use onward_store::{ServerInfo, Shard};

use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::notify::listener::BROADCAST_MILLIS;
use crate::write::unit::UnitOfWork;

impl UnitOfWork<'_> {
    pub async fn announce_server(&mut self, server: &ServerInfo, lease: Option<Duration>) -> Outcome<()> {
        let Some(lease) = lease else {
            self.db.query(&Sql::new("DELETE FROM onward.servers WHERE id = $1").text(server.id.as_str())).await?;
            return Ok(());
        };
        let text = "INSERT INTO onward.servers(id, url, version, started, last_seen, until, workers)
          VALUES ($1, $2, $3, $4, $5, $6, $7)
          ON CONFLICT (id) DO UPDATE SET url = excluded.url, version = excluded.version, last_seen = excluded.last_seen,
            until = excluded.until, workers = excluded.workers";
        let sql = Sql::new(text)
            .text(server.id.as_str())
            .text(server.url.as_str())
            .text(server.version.as_str())
            .number(server.started_at.0 as i64)
            .number(self.set.now.0 as i64)
            .number(self.set.now.after(lease).0 as i64)
            .bytes(server.workers.clone());
        self.db.query(&sql).await?;
        Ok(())
    }

    /// Returns the servers whose announcement has not expired, and deletes the others.
    pub async fn list_servers(&mut self) -> Outcome<Vec<ServerInfo>> {
        let now = self.set.now.0 as i64;
        let statements = [
            Sql::new("DELETE FROM onward.servers WHERE until <= $1").number(now),
            Sql::new("SELECT id, url, version, started, last_seen, workers FROM onward.servers WHERE until > $1 ORDER BY id")
                .number(now),
        ];
        let answers = self.db.pipeline(None, &statements, None).await?;
        let read = |row: &tokio_postgres::Row| {
            let at = |column: usize| Timestamp(row.get::<_, i64>(column) as u64);
            let id = Name::new(row.get::<_, String>(0)).map_err(|_| damaged("a server's row", "its id is not readable"))?;
            let (url, version, workers) = (row.get(1), row.get(2), row.get(5));
            Ok(ServerInfo { id, url, version, started_at: at(3), last_seen_at: at(4), workers })
        };
        answers.last().into_iter().flatten().map(read).collect()
    }

    /// Writes a broadcast and deletes old ones. Returns its number.
    pub async fn put_broadcast(&mut self, message: &[u8]) -> Outcome<i64> {
        let now = self.set.now.0 as i64;
        let statements = [
            Sql::new("DELETE FROM onward.broadcasts WHERE at < $1").number(now - BROADCAST_MILLIS),
            Sql::new("INSERT INTO onward.broadcasts(at, data) VALUES ($1, $2) RETURNING id").number(now).bytes(message.to_vec()),
        ];
        let answers = self.db.pipeline(None, &statements, None).await?;
        Ok(answers.last().and_then(|rows| rows.first()).map_or(0, |row| row.get(0)))
    }
}

const READ_SHARD: &str = "SELECT cluster, position, count FROM onward.shard";

/// The shard that this database holds: recorded once, never changed.
impl UnitOfWork<'_> {
    /// Returns the recorded shard. A database with runs but without a record holds all root runs.
    pub async fn read_shard(&mut self) -> Outcome<Option<Shard>> {
        let statements = [Sql::new(READ_SHARD), Sql::new("SELECT EXISTS (SELECT 1 FROM onward.runs)")];
        let answers = self.db.pipeline(None, &statements, None).await?;
        let number = |value: i64| u32::try_from(value).unwrap_or_default();
        if let Some(row) = answers[0].first() {
            return Ok(Some(Shard { cluster: row.get(0), position: number(row.get(1)), count: number(row.get(2)) }));
        }
        let has_runs = answers[1].first().is_some_and(|row| row.get(0));
        Ok(has_runs.then(|| Shard::all(String::new())))
    }

    /// Records the shard and returns the one that counts: of two concurrent calls the first wins, the second waits and reads its
    /// row.
    pub async fn record_shard(&mut self, shard: &Shard) -> Outcome<Shard> {
        if let Some(known) = self.read_shard().await? {
            return Ok(known);
        }
        let text = "INSERT INTO onward.shard(cluster, position, count) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let sql = Sql::new(text).text(shard.cluster.as_str()).number(shard.position.into()).number(shard.count.into());
        self.db.query(&sql).await?;
        Ok(self.read_shard().await?.unwrap_or_else(|| shard.clone()))
    }
}
