//! What a scene has decided, as rows: many runs, one statement per table, one round trip with the COMMIT.
//!
//! Must never decide: every value here is in the scene.

use onward_core::{Name, RunHead, Timestamp};
use onward_store::kept::Stash;
use onward_store::kept::seal::{due_number, place_key, seal};

use crate::row::{crc, event_crc, seal_head};
use crate::scene::{Queued, Scene, Seat};
use crate::sql::Sql;
use crate::tasks::state_column;

pub(crate) const UPDATE_HEADS: &str =
    "UPDATE onward.runs r SET head = u.head, next = u.next FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS u(rk, head, next)
  WHERE r.rk = u.rk";

const UPDATE_RUNS: &str = "UPDATE onward.runs r SET kind = u.kind, version = u.version, status = u.status, created = u.created,
  ended = u.ended, ready = u.ready, worker = u.worker, head = u.head, generation = u.generation, next = u.next
  FROM unnest($1::bigint[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bytea[],
    $10::int[], $11::bigint[]) AS u(rk, kind, version, status, created, ended, ready, worker, head, generation, next) WHERE r.rk = u.rk";

const INSERT_RUNS: &str =
    "INSERT INTO onward.runs(rk, kind, version, status, created, ended, ready, worker, head, generation, next, ns, id, parent_ns, parent_id)
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
    $9::bytea[], $10::int[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[])";

const INSERT_EVENTS: &str = "INSERT INTO onward.events(rk, generation, idx, at, crc, body)
  SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])";

impl Scene<'_> {
    /// The statements that write everything; none if nothing changed.
    pub fn statements(mut self) -> Vec<Sql> {
        let mut sql = Vec::new();
        let mut seats: Vec<Seat> = std::mem::take(&mut self.seats).into_values().flatten().collect();
        // New runs go in in the order of their names: two transactions that start the same ones do not wait for each other (DB4).
        seats.sort_by(|a, b| a.head.key.cmp(&b.head.key));
        save_runs(&seats, &mut sql);
        save_events(&seats, &mut sql);
        save_slots(&seats, &mut sql);
        self.save_waits(&seats, &mut sql);
        save_timers(&seats, &mut sql);
        self.save_tasks(&seats, &mut sql);
        save_attributes(&seats, &mut sql);
        self.save_outbox(&mut sql);
        self.save_blobs(&mut sql);
        self.save_sessions(&mut sql);
        sql
    }

    fn save_waits(&mut self, seats: &[Seat], sql: &mut Vec<Sql>) {
        clear("waits", seats, |seat| seat.waits.is_cleared(), sql);
        let (mut gone, mut rows) = (Places::default(), Vec::new());
        for seat in seats {
            for (place, wait) in seat.waits.changes() {
                match wait {
                    Some(wait) => rows.push((seat.rk, wait.clone())),
                    None => gone.push(seat.rk, place),
                }
            }
        }
        gone.delete("waits", sql);
        if rows.is_empty() {
            return;
        }
        let text = "INSERT INTO onward.waits(rk, place, ns, id, kind, requested, data)
          SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::text[], $5::smallint[], $6::bigint[], $7::bytea[])
          ON CONFLICT (rk, place) DO UPDATE SET kind = excluded.kind, requested = excluded.requested, data = excluded.data";
        rows.iter_mut().for_each(|(rk, wait)| self.blobs.push((*rk, Stash::take(wait))));
        sql.push(
            Sql::new(text)
                .numbers(rows.iter().map(|(rk, _)| *rk).collect())
                .byteses(rows.iter().map(|(_, wait)| place_key(&wait.place)).collect())
                .texts(rows.iter().map(|(_, wait)| wait.run.namespace.as_str().to_owned()).collect())
                .texts(rows.iter().map(|(_, wait)| wait.run.id.as_str().to_owned()).collect())
                .smalls(rows.iter().map(|(_, wait)| i16::from(wait.kind.number())).collect())
                .numbers(rows.iter().map(|(_, wait)| wait.requested_at.0 as i64).collect())
                .byteses(rows.iter().map(|(_, wait)| seal(wait)).collect()),
        );
    }

    fn save_tasks(&mut self, seats: &[Seat], sql: &mut Vec<Sql>) {
        clear("tasks", seats, |seat| seat.tasks.is_cleared(), sql);
        let (mut gone, mut rows) = (Places::default(), Vec::new());
        for seat in seats {
            for (place, queued) in seat.tasks.changes() {
                match queued {
                    Some(queued) => rows.push((seat.rk, queued.clone())),
                    None => gone.push(seat.rk, place),
                }
            }
        }
        gone.delete("tasks", sql);
        if rows.is_empty() {
            return;
        }
        sql.push(upsert_tasks(rows, self.now, &mut self.blobs));
    }

    fn save_outbox(&mut self, sql: &mut Vec<Sql>) {
        if self.outbox.is_empty() {
            return;
        }
        let (numbers, data) = std::mem::take(&mut self.outbox).into_iter().unzip();
        let text = "INSERT INTO onward.outbox(rk, data) SELECT * FROM unnest($1::bigint[], $2::bytea[])";
        sql.push(Sql::new(text).numbers(numbers).byteses(data));
    }

    fn save_blobs(&mut self, sql: &mut Vec<Sql>) {
        let blobs = std::mem::take(&mut self.blobs).into_iter();
        let rows = blobs.flat_map(|(rk, stash)| stash.blobs.into_iter().map(move |(hash, data)| (rk, hash, data)));
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return;
        }
        let text = "INSERT INTO onward.blobs(rk, hash, data) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])
          ON CONFLICT DO NOTHING";
        sql.push(
            Sql::new(text)
                .numbers(rows.iter().map(|row| row.0).collect())
                .byteses(rows.iter().map(|row| row.1.0.to_vec()).collect())
                .byteses(rows.iter().map(|row| row.2.to_vec()).collect()),
        );
    }

    /// A worker that is known keeps its time. Its row is locked in either case, so that it cannot be forgotten while it gets a run (DB5).
    fn save_sessions(&mut self, sql: &mut Vec<Sql>) {
        if self.greeted.is_empty() {
            return;
        }
        let greeted = std::mem::take(&mut self.greeted);
        let (workers, until) = greeted.into_iter().map(|(worker, at)| (worker.as_str().to_owned(), at.0 as i64)).unzip();
        let text = "INSERT INTO onward.sessions AS s (worker, until) SELECT * FROM unnest($1::text[], $2::bigint[])
          ON CONFLICT (worker) DO UPDATE SET until = s.until";
        sql.push(Sql::new(text).texts(workers).numbers(until));
    }
}

/// Writes tasks over their rows, or into new ones.
pub(crate) fn upsert_tasks(mut rows: Vec<(i64, Queued)>, now: Timestamp, blobs: &mut Vec<(i64, Stash)>) -> Sql {
    let text = "INSERT INTO onward.tasks(rk, place, ns, queue, kind, priority, ord, state, visible, due, data)
      SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::int[], $7::bigint[], $8::smallint[],
        $9::bigint[], $10::bigint[], $11::bytea[])
      ON CONFLICT (rk, place) DO UPDATE SET ns = excluded.ns, queue = excluded.queue, kind = excluded.kind,
        priority = excluded.priority, ord = excluded.ord, state = excluded.state, visible = excluded.visible,
        due = excluded.due, data = excluded.data";
    rows.iter_mut().for_each(|(rk, queued)| blobs.push((*rk, Stash::take(&mut queued.task))));
    let text_of = |name: Option<&Name>| name.map_or("", Name::as_str).to_owned();
    Sql::new(text)
        .numbers(rows.iter().map(|(rk, _)| *rk).collect())
        .byteses(rows.iter().map(|(_, row)| place_key(&row.task.id.place)).collect())
        .texts(rows.iter().map(|(_, row)| row.task.id.run.namespace.as_str().to_owned()).collect())
        .texts(rows.iter().map(|(_, row)| text_of(row.task.options.queue.as_ref())).collect())
        .texts(rows.iter().map(|(_, row)| row.task.kind.as_str().to_owned()).collect())
        .ints(rows.iter().map(|(_, row)| row.task.options.priority).collect())
        .numbers(rows.iter().map(|(_, row)| row.order).collect())
        .smalls(rows.iter().map(|(_, row)| state_column(&row.task, now)).collect())
        .numbers(rows.iter().map(|(_, row)| due_number(row.task.visible_at)).collect())
        .maybe_numbers(rows.iter().map(|(_, row)| row.task.due_at().map(due_number)).collect())
        .byteses(rows.iter().map(|(_, row)| seal(&row.task)).collect())
}

fn save_runs(seats: &[Seat], sql: &mut Vec<Sql>) {
    let changed = || seats.iter().filter(|seat| seat.is_changed);
    let is_same = |seat: &&Seat| seat.stored.as_ref().is_some_and(|stored| stored.columns == seat.columns());
    let heads: Vec<&Seat> = changed().filter(is_same).collect();
    if !heads.is_empty() {
        let numbers = heads.iter().map(|seat| seat.rk).collect();
        let sealed = heads.iter().map(|seat| seal_head(&seat.head, &seat.input_hash)).collect();
        let next = heads.iter().map(|seat| seat.head.next_index.0 as i64).collect();
        sql.push(Sql::new(UPDATE_HEADS).numbers(numbers).byteses(sealed).numbers(next));
    }
    let others: Vec<&Seat> = changed().filter(|seat| seat.stored.is_some() && !is_same(seat)).collect();
    if !others.is_empty() {
        sql.push(columns(Sql::new(UPDATE_RUNS), &others));
    }
    let new: Vec<&Seat> = changed().filter(|seat| seat.stored.is_none()).collect();
    if !new.is_empty() {
        let parent = |seat: &&Seat| seat.head.parent.as_ref().map(|link| link.run.clone());
        sql.push(
            columns(Sql::new(INSERT_RUNS), &new)
                .texts(new.iter().map(|seat| seat.head.key.namespace.as_str().to_owned()).collect())
                .texts(new.iter().map(|seat| seat.head.key.id.as_str().to_owned()).collect())
                .maybe_texts(new.iter().map(|seat| parent(seat).map(|key| key.namespace.as_str().to_owned())).collect())
                .maybe_texts(new.iter().map(|seat| parent(seat).map(|key| key.id.as_str().to_owned())).collect()),
        );
    }
    let past: Vec<(&Seat, &RunHead)> = seats.iter().flat_map(|seat| seat.past.iter().map(move |head| (seat, head))).collect();
    if !past.is_empty() {
        let text = "INSERT INTO onward.past(rk, generation, head) SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[])";
        sql.push(
            Sql::new(text)
                .numbers(past.iter().map(|(seat, _)| seat.rk).collect())
                .ints(past.iter().map(|(_, head)| head.generation as i32).collect())
                .byteses(past.iter().map(|(seat, head)| seal_head(head, &seat.input_hash)).collect()),
        );
    }
}

fn columns(sql: Sql, seats: &[&Seat]) -> Sql {
    let columns: Vec<_> = seats.iter().map(|seat| seat.columns()).collect();
    let at = |at: Timestamp| at.0 as i64;
    sql.numbers(seats.iter().map(|seat| seat.rk).collect())
        .texts(columns.iter().map(|own| own.1.clone()).collect())
        .texts(columns.iter().map(|own| own.2.clone()).collect())
        .smalls(columns.iter().map(|own| i16::from(own.0.number())).collect())
        .numbers(columns.iter().map(|own| at(own.3)).collect())
        .maybe_numbers(columns.iter().map(|own| own.4.map(at)).collect())
        .maybe_numbers(columns.iter().map(|own| own.5).collect())
        .maybe_texts(columns.iter().map(|own| own.6.as_ref().map(|worker| worker.as_str().to_owned())).collect())
        .byteses(seats.iter().map(|seat| seal_head(&seat.head, &seat.input_hash)).collect())
        .ints(seats.iter().map(|seat| seat.head.generation as i32).collect())
        .numbers(seats.iter().map(|seat| seat.head.next_index.0 as i64).collect())
}

fn save_events(seats: &[Seat], sql: &mut Vec<Sql>) {
    let events: Vec<_> = seats.iter().flat_map(|seat| seat.events.iter().map(move |event| (seat.rk, event))).collect();
    if events.is_empty() {
        return;
    }
    let crc = |(rk, event): &(i64, &crate::scene::NewEvent)| event_crc(*rk, event.generation, event.index, event.at, &event.body);
    sql.push(
        Sql::new(INSERT_EVENTS)
            .numbers(events.iter().map(|(rk, _)| *rk).collect())
            .ints(events.iter().map(|(_, event)| event.generation as i32).collect())
            .numbers(events.iter().map(|(_, event)| event.index.0 as i64).collect())
            .numbers(events.iter().map(|(_, event)| event.at.0 as i64).collect())
            .numbers(events.iter().map(crc).collect())
            .byteses(events.iter().map(|(_, event)| event.body.clone()).collect()),
    );
}

fn save_slots(seats: &[Seat], sql: &mut Vec<Sql>) {
    let changes = seats.iter().flat_map(|seat| seat.slots.changes().map(move |(key, slot)| (seat.rk, key, slot)));
    let (rows, gone): (Vec<_>, Vec<_>) = changes.partition(|(_, _, slot)| slot.is_some());
    if !gone.is_empty() {
        let text = "DELETE FROM onward.slots s USING unnest($1::bigint[], $2::bytea[]) AS k(rk, key) WHERE s.rk = k.rk AND s.key = k.key";
        let (numbers, keys) = gone.into_iter().map(|(rk, key, _)| (rk, key.clone().into_bytes())).unzip();
        sql.push(Sql::new(text).numbers(numbers).byteses(keys));
    }
    let rows: Vec<_> = rows.into_iter().filter_map(|(rk, key, slot)| Some((rk, key.as_bytes(), slot?))).collect();
    if rows.is_empty() {
        return;
    }
    let text = "INSERT INTO onward.slots(rk, key, token, idx, at, crc)
      SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[])
      ON CONFLICT (rk, key) DO UPDATE SET token = excluded.token, idx = excluded.idx, at = excluded.at, crc = excluded.crc";
    sql.push(
        Sql::new(text)
            .numbers(rows.iter().map(|row| row.0).collect())
            .byteses(rows.iter().map(|row| row.1.to_vec()).collect())
            .byteses(rows.iter().map(|row| row.2.token.clone().into_bytes()).collect())
            .numbers(rows.iter().map(|row| row.2.index.0 as i64).collect())
            .numbers(rows.iter().map(|row| row.2.at.0 as i64).collect())
            .numbers(
                rows.iter()
                    .map(|(rk, key, slot)| crc(&[*rk, slot.index.0 as i64, slot.at.0 as i64], &[key, slot.token.as_bytes()]))
                    .collect(),
            ),
    );
}

fn save_timers(seats: &[Seat], sql: &mut Vec<Sql>) {
    clear("timers", seats, |seat| seat.timers.is_cleared(), sql);
    let (mut gone, mut rows) = (Places::default(), Vec::new());
    for seat in seats {
        for (place, timer) in seat.timers.changes() {
            match timer {
                Some(timer) => rows.push((seat.rk, place_key(place), due_number(timer.due_at), timer.is_frozen)),
                None => gone.push(seat.rk, place),
            }
        }
    }
    gone.delete("timers", sql);
    if rows.is_empty() {
        return;
    }
    let text = "INSERT INTO onward.timers(rk, place, due, frozen, crc)
      SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::boolean[], $5::bigint[])
      ON CONFLICT (rk, place) DO UPDATE SET due = excluded.due, frozen = excluded.frozen, crc = excluded.crc";
    sql.push(
        Sql::new(text)
            .numbers(rows.iter().map(|row| row.0).collect())
            .byteses(rows.iter().map(|row| row.1.clone()).collect())
            .numbers(rows.iter().map(|row| row.2).collect())
            .flags(rows.iter().map(|row| row.3).collect())
            .numbers(rows.iter().map(|(rk, place, due, frozen)| crc(&[*rk, *due, i64::from(*frozen)], &[place])).collect()),
    );
}

/// The run is found by its attributes, and by no others.
fn save_attributes(seats: &[Seat], sql: &mut Vec<Sql>) {
    let is_other = |seat: &&Seat| {
        let before = seat.stored.as_ref().map(|stored| &stored.attributes);
        before.map_or(!seat.head.attributes.is_empty(), |before| *before != seat.head.attributes)
    };
    let changed: Vec<&Seat> = seats.iter().filter(is_other).collect();
    if changed.is_empty() {
        return;
    }
    let numbers = changed.iter().map(|seat| seat.rk).collect();
    sql.push(Sql::new("DELETE FROM onward.attributes WHERE rk = ANY($1)").numbers(numbers));
    let rows: Vec<_> = changed.iter().flat_map(|seat| seat.head.attributes.iter().map(|own| (seat.rk, own))).collect();
    let text = "INSERT INTO onward.attributes(rk, name, value) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])";
    sql.push(
        Sql::new(text)
            .numbers(rows.iter().map(|row| row.0).collect())
            .texts(rows.iter().map(|row| row.1.name.as_str().to_owned()).collect())
            .byteses(rows.iter().map(|row| row.1.value.to_key().into_bytes()).collect()),
    );
}

/// Rows that go, by run and place.
#[derive(Default)]
struct Places {
    numbers: Vec<i64>,
    places: Vec<Vec<u8>>,
}

impl Places {
    fn push(&mut self, rk: i64, place: &onward_core::Place) {
        self.numbers.push(rk);
        self.places.push(place_key(place));
    }

    fn delete(self, table: &str, sql: &mut Vec<Sql>) {
        if !self.numbers.is_empty() {
            let text = format!(
                "DELETE FROM onward.{table} t USING unnest($1::bigint[], $2::bytea[]) AS k(rk, place) WHERE t.rk = k.rk AND t.place = k.place"
            );
            sql.push(Sql::new(text).numbers(self.numbers).byteses(self.places));
        }
    }
}

/// Removes all rows of the runs that want it.
fn clear(table: &str, seats: &[Seat], is_cleared: impl Fn(&Seat) -> bool, sql: &mut Vec<Sql>) {
    let numbers: Vec<i64> = seats.iter().filter(|seat| is_cleared(seat) && seat.stored.is_some()).map(|seat| seat.rk).collect();
    if !numbers.is_empty() {
        sql.push(Sql::new(format!("DELETE FROM onward.{table} WHERE rk = ANY($1)")).numbers(numbers));
    }
}
