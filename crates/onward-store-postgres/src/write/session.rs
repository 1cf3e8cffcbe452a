//! Sessions of workers, which hold their leases.

use onward_core::WorkerId;

use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::write::unit::UnitOfWork;

impl UnitOfWork<'_> {
    /// Extends a worker's session; returns whether there was one.
    pub async fn heartbeat(&mut self, worker: &WorkerId, lease: std::time::Duration) -> Outcome<bool> {
        let until = self.set.now.after(lease);
        let text = "INSERT INTO onward.sessions(worker, until) VALUES ($1, $2)
          ON CONFLICT (worker) DO UPDATE SET until = excluded.until RETURNING xmax <> 0";
        let sql = Sql::new(text).text(worker.as_str()).number(until.0 as i64);
        let rows = self.db.query(&sql).await?;
        self.set.announce_due(until);
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}
