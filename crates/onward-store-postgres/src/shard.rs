//! The shard that this database holds: recorded once, never changed.

use onward_store::Shard;

use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::write::unit::UnitOfWork;

const READ: &str = "SELECT cluster, position, count FROM onward.shard";

impl UnitOfWork<'_> {
    /// Returns the recorded shard. A database with runs but without a record holds all root runs.
    pub async fn read_shard(&mut self) -> Outcome<Option<Shard>> {
        let statements = [Sql::new(READ), Sql::new("SELECT EXISTS (SELECT 1 FROM onward.runs)")];
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
