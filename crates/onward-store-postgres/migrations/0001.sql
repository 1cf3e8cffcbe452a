-- Names are compared byte for byte everywhere, so that all stores sort alike.

-- One row per run: its current head and its lease. Narrow, because every commit writes it; a commit of a leased run changes no
-- indexed column, so that the row stays on its page. Runs that are started together continue together, so many rows of one page
-- are rewritten in one transaction: most of a page is left free for that.
CREATE TABLE onward.runs (
  rk bigint PRIMARY KEY,
  ns text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  status smallint NOT NULL,
  created bigint NOT NULL,
  ended bigint,
  parent_ns text COLLATE "C",
  parent_id text COLLATE "C",
  ready bigint,
  worker text COLLATE "C",
  generation int NOT NULL,
  next bigint NOT NULL,
  head bytea NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX runs_key ON onward.runs (ns, id);
CREATE INDEX runs_created ON onward.runs (ns, created DESC, id DESC);
CREATE INDEX runs_kind ON onward.runs (ns, kind, created DESC, id DESC);
CREATE INDEX runs_status ON onward.runs (ns, status, created DESC, id DESC);
CREATE INDEX runs_ready ON onward.runs (ns, kind, version, ready) WHERE ready IS NOT NULL;
CREATE INDEX runs_worker ON onward.runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_ended ON onward.runs (kind, ended) WHERE ended IS NOT NULL;
CREATE INDEX runs_parent ON onward.runs (parent_ns, parent_id) WHERE parent_id IS NOT NULL;
-- Numbers are never reused, not even after a rollback.
CREATE SEQUENCE onward.run_numbers;

-- The heads of generations that have ended.
CREATE TABLE onward.past (
  rk bigint NOT NULL, generation int NOT NULL, head bytea NOT NULL, PRIMARY KEY (rk, generation));

CREATE TABLE onward.events (
  rk bigint NOT NULL, generation int NOT NULL, idx bigint NOT NULL, at bigint NOT NULL, crc bigint NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (rk, generation, idx)) WITH (autovacuum_vacuum_insert_scale_factor = 0.2);

-- Idempotency records, kept over all generations. Ids come from callers, so they are bytes.
CREATE TABLE onward.idempotency (
  rk bigint NOT NULL, key bytea NOT NULL, token bytea NOT NULL, idx bigint NOT NULL, at bigint NOT NULL, crc bigint NOT NULL,
  PRIMARY KEY (rk, key));

CREATE TABLE onward.timers (
  rk bigint NOT NULL, call_id bytea NOT NULL, due bigint NOT NULL, frozen boolean NOT NULL, crc bigint NOT NULL,
  PRIMARY KEY (rk, call_id)) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX timers_due ON onward.timers (due, rk, call_id) WHERE NOT frozen;

CREATE TABLE onward.tasks (
  rk bigint NOT NULL, call_id bytea NOT NULL, ns text COLLATE "C" NOT NULL, queue text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL, priority int NOT NULL, ord bigint NOT NULL, state smallint NOT NULL, visible bigint NOT NULL,
  due bigint, data bytea NOT NULL,
  PRIMARY KEY (rk, call_id)) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasks_ready ON onward.tasks (ns, queue, kind, priority DESC, visible, ord) WHERE state = 0;
CREATE INDEX tasks_delayed ON onward.tasks (visible, ord) WHERE state = 3;
CREATE INDEX tasks_due ON onward.tasks (due, ord) WHERE due IS NOT NULL;
CREATE INDEX tasks_list ON onward.tasks (ns, ord);

CREATE TABLE onward.waits (
  rk bigint NOT NULL, call_id bytea NOT NULL, ns text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, kind smallint NOT NULL,
  requested bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (rk, call_id));
CREATE INDEX waits_list ON onward.waits (ns, requested, id, call_id);

-- Messages to other runs. The number orders them and is not a cursor: the dispatcher takes the oldest and deletes it.
CREATE TABLE onward.outbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, rk bigint NOT NULL, data bytea NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_run ON onward.outbox (rk);

CREATE TABLE onward.attributes (
  rk bigint NOT NULL, name text COLLATE "C" NOT NULL, value bytea NOT NULL, PRIMARY KEY (rk, name));
CREATE INDEX attributes_value ON onward.attributes (name, value, rk);

CREATE TABLE onward.blobs (
  rk bigint NOT NULL, hash bytea NOT NULL, data bytea NOT NULL, PRIMARY KEY (rk, hash));

CREATE TABLE onward.deleted (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ns text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL, at bigint NOT NULL, reason bytea NOT NULL, crc bigint NOT NULL);
CREATE INDEX deleted_kind ON onward.deleted (kind, at);
CREATE INDEX deleted_list ON onward.deleted (ns, seq DESC);

CREATE TABLE onward.kinds (
  ns text COLLATE "C" NOT NULL, task boolean NOT NULL, kind text COLLATE "C" NOT NULL, version text COLLATE "C" NOT NULL,
  data bytea NOT NULL, PRIMARY KEY (ns, task, kind, version));

-- End of each worker session.
CREATE TABLE onward.sessions (worker text COLLATE "C" PRIMARY KEY, until bigint NOT NULL);
CREATE INDEX sessions_until ON onward.sessions (until);

-- Servers that share the database, with the list of their workers.
CREATE TABLE onward.servers (
  id text COLLATE "C" PRIMARY KEY, url text NOT NULL, version text NOT NULL, started bigint NOT NULL, last_seen bigint NOT NULL,
  until bigint NOT NULL, workers bytea NOT NULL);

-- Broadcasts to all servers; each is deleted after half a minute.
CREATE TABLE onward.broadcasts (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint NOT NULL, data bytea NOT NULL);
CREATE INDEX broadcasts_at ON onward.broadcasts (at);

-- The shard that this database holds, once it is recorded: one row at most.
CREATE TABLE onward.shard (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), cluster text NOT NULL, position bigint NOT NULL, count bigint NOT NULL);

-- The place of this database when it was last written to, and the epoch below which no lease counts: one row. A restored copy or
-- a standby that takes over has another place (set `location` to '' to report this by hand).
CREATE TABLE onward.restore_guard (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), location text NOT NULL, floor bigint NOT NULL);
INSERT INTO onward.restore_guard(location, floor) VALUES ('', 0);

-- Spend: the sum of what one log records of one model on one day. Rows stay when their run is deleted; the incarnation
-- distinguishes a log from an earlier one of the same id. They change under the lock of their run.
CREATE TABLE onward.ledger (
  ns text COLLATE "C" NOT NULL, day bigint NOT NULL, id text COLLATE "C" NOT NULL, generation int NOT NULL, incarnation bigint NOT NULL,
  model bytea NOT NULL, tree text COLLATE "C" NOT NULL, data bytea NOT NULL, crc bigint NOT NULL,
  PRIMARY KEY (ns, day, id, generation, incarnation, model));
CREATE INDEX ledger_tree ON onward.ledger (ns, tree);


-- The reads and writes of every batch, as functions: a session caches the plans of their statements, whichever connection it
-- belongs to. They decide nothing. Servers of two versions may call them at the same time: a function is never changed, a new one
-- gets a new name.

-- Sets up a transaction: locks its runs in the order of their numbers, and reads the open children of those that may end, numbers
-- for new runs, and the restore guard. `positions` and `child_positions` count from 1 in the given names.
CREATE FUNCTION onward.enter(ns text[], ids text[], parents int[], fresh int, is_dim boolean,
  OUT positions bigint[], OUT numbers bigint[], OUT ready bigint[], OUT workers text[], OUT heads bytea[],
  OUT child_positions int[], OUT child_heads bytea[], OUT fresh_numbers bigint[],
  OUT clock bigint, OUT floor bigint, OUT is_denied boolean, OUT table_number bigint, OUT written bigint, OUT running_since bigint)
LANGUAGE plpgsql AS $$
BEGIN
  -- Every statement of a writing transaction finds its rows through an index, a few for each run. The planner would scan a table
  -- that it believes to be small, which is wrong once the table has grown; so scans are disabled. A server that stops between two
  -- statements must not keep its locks.
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true);
  -- While there are few runs, all indexes cost the same for the planner: a cached plan is made only later.
  IF cardinality($1) > 0 AND pg_relation_size('onward.runs') < 2097152 THEN
    EXECUTE 'SELECT array_agg(l.position), array_agg(l.rk), array_agg(l.ready), array_agg(l.worker), array_agg(l.head)
      FROM (SELECT k.position, r.rk, r.ready, r.worker, r.head FROM unnest($1, $2) WITH ORDINALITY AS k(ns, id, position)
        JOIN onward.runs r ON r.ns = k.ns AND r.id = k.id ORDER BY r.rk FOR UPDATE OF r) AS l'
      INTO positions, numbers, ready, workers, heads USING $1, $2;
  ELSIF cardinality($1) > 0 THEN
    SELECT array_agg(l.position), array_agg(l.rk), array_agg(l.ready), array_agg(l.worker), array_agg(l.head)
      INTO positions, numbers, ready, workers, heads
      FROM (SELECT k.position, r.rk, r.ready, r.worker, r.head FROM unnest($1, $2) WITH ORDINALITY AS k(ns, id, position)
        JOIN onward.runs r ON r.ns = k.ns AND r.id = k.id ORDER BY r.rk FOR UPDATE OF r) AS l;
  END IF;
  IF cardinality($3) > 0 THEN
    SELECT array_agg(c.position), array_agg(c.head) INTO child_positions, child_heads
      FROM (SELECT p.position, r.head FROM unnest($3) AS p(position)
        JOIN onward.runs r ON r.parent_ns = ($1)[p.position] AND r.parent_id = ($2)[p.position] AND r.status < 4) AS c;
  END IF;
  IF $4 > 0 THEN
    fresh_numbers := ARRAY(SELECT nextval('onward.run_numbers') FROM generate_series(1, $4));
  END IF;
  IF is_dim THEN
    SELECT l.floor, l.location = '', l.tableoid::bigint, 0::bigint, 0::bigint INTO floor, is_denied, table_number, written, running_since
      FROM onward.restore_guard l WHERE l.only_one;
  ELSE
    SELECT l.floor, l.location = '', l.tableoid::bigint, (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint,
        (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
      INTO floor, is_denied, table_number, written, running_since FROM onward.restore_guard l WHERE l.only_one;
  END IF;
  -- Read after the locks: no decision uses a time at which another transaction still decided.
  clock := extract(epoch FROM clock_timestamp()) * 1000000;
END $$;

-- Writes heads of runs whose indexed columns are unchanged.
CREATE FUNCTION onward.put_heads(bigint[], bytea[], bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE onward.runs r SET head = u.head, next = u.next FROM unnest($1, $2, $3) AS u(rk, head, next) WHERE r.rk = u.rk;
END $$;

CREATE FUNCTION onward.put_runs(bigint[], text[], text[], smallint[], bigint[], bigint[], bigint[], text[], bytea[], int[], bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE onward.runs r SET kind = u.kind, version = u.version, status = u.status, created = u.created, ended = u.ended,
      ready = u.ready, worker = u.worker, head = u.head, generation = u.generation, next = u.next
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
      AS u(rk, kind, version, status, created, ended, ready, worker, head, generation, next) WHERE r.rk = u.rk;
END $$;

CREATE FUNCTION onward.make_runs(bigint[], text[], text[], smallint[], bigint[], bigint[], bigint[], text[], bytea[], int[], bigint[],
  text[], text[], text[], text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.runs(rk, kind, version, status, created, ended, ready, worker, head, generation, next, ns, id, parent_ns, parent_id)
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);
END $$;

CREATE FUNCTION onward.put_past(bigint[], int[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.past(rk, generation, head) SELECT * FROM unnest($1, $2, $3);
END $$;

CREATE FUNCTION onward.put_events(bigint[], int[], bigint[], bigint[], bigint[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.events(rk, generation, idx, at, crc, body) SELECT * FROM unnest($1, $2, $3, $4, $5, $6);
END $$;

-- In the following functions the first arrays name rows to delete: all rows of runs (`cleared`), then rows by key.
CREATE FUNCTION onward.put_idempotency(gone bigint[], gone_keys bytea[], bigint[], bytea[], bytea[], bigint[], bigint[], bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(gone) > 0 THEN
    DELETE FROM onward.idempotency s USING unnest(gone, gone_keys) AS k(rk, key) WHERE s.rk = k.rk AND s.key = k.key;
  END IF;
  IF cardinality($3) > 0 THEN
    INSERT INTO onward.idempotency(rk, key, token, idx, at, crc) SELECT * FROM unnest($3, $4, $5, $6, $7, $8)
      ON CONFLICT (rk, key) DO UPDATE SET token = excluded.token, idx = excluded.idx, at = excluded.at, crc = excluded.crc;
  END IF;
END $$;

CREATE FUNCTION onward.put_waits(cleared bigint[], gone bigint[], gone_call_ids bytea[],
  bigint[], bytea[], text[], text[], smallint[], bigint[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(cleared) > 0 THEN
    DELETE FROM onward.waits WHERE rk = ANY(cleared);
  END IF;
  IF cardinality(gone) > 0 THEN
    DELETE FROM onward.waits t USING unnest(gone, gone_call_ids) AS k(rk, call_id) WHERE t.rk = k.rk AND t.call_id = k.call_id;
  END IF;
  IF cardinality($4) > 0 THEN
    INSERT INTO onward.waits(rk, call_id, ns, id, kind, requested, data) SELECT * FROM unnest($4, $5, $6, $7, $8, $9, $10)
      ON CONFLICT (rk, call_id) DO UPDATE SET kind = excluded.kind, requested = excluded.requested, data = excluded.data;
  END IF;
END $$;

CREATE FUNCTION onward.put_timers(cleared bigint[], gone bigint[], gone_call_ids bytea[], bigint[], bytea[], bigint[], boolean[], bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(cleared) > 0 THEN
    DELETE FROM onward.timers WHERE rk = ANY(cleared);
  END IF;
  IF cardinality(gone) > 0 THEN
    DELETE FROM onward.timers t USING unnest(gone, gone_call_ids) AS k(rk, call_id) WHERE t.rk = k.rk AND t.call_id = k.call_id;
  END IF;
  IF cardinality($4) > 0 THEN
    INSERT INTO onward.timers(rk, call_id, due, frozen, crc) SELECT * FROM unnest($4, $5, $6, $7, $8)
      ON CONFLICT (rk, call_id) DO UPDATE SET due = excluded.due, frozen = excluded.frozen, crc = excluded.crc;
  END IF;
END $$;

CREATE FUNCTION onward.put_tasks(cleared bigint[], gone bigint[], gone_call_ids bytea[],
  bigint[], bytea[], text[], text[], text[], int[], bigint[], smallint[], bigint[], bigint[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(cleared) > 0 THEN
    DELETE FROM onward.tasks WHERE rk = ANY(cleared);
  END IF;
  IF cardinality(gone) > 0 THEN
    DELETE FROM onward.tasks t USING unnest(gone, gone_call_ids) AS k(rk, call_id) WHERE t.rk = k.rk AND t.call_id = k.call_id;
  END IF;
  IF cardinality($4) > 0 THEN
    INSERT INTO onward.tasks(rk, call_id, ns, queue, kind, priority, ord, state, visible, due, data)
      SELECT * FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
      ON CONFLICT (rk, call_id) DO UPDATE SET ns = excluded.ns, queue = excluded.queue, kind = excluded.kind,
        priority = excluded.priority, ord = excluded.ord, state = excluded.state, visible = excluded.visible, due = excluded.due,
        data = excluded.data;
  END IF;
END $$;

CREATE FUNCTION onward.put_attributes(cleared bigint[], bigint[], text[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM onward.attributes WHERE rk = ANY(cleared);
  INSERT INTO onward.attributes(rk, name, value) SELECT * FROM unnest($2, $3, $4);
END $$;

CREATE FUNCTION onward.put_outbox(bigint[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.outbox(rk, data) SELECT * FROM unnest($1, $2);
END $$;

CREATE FUNCTION onward.put_blobs(bigint[], bytea[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.blobs(rk, hash, data) SELECT * FROM unnest($1, $2, $3) ON CONFLICT DO NOTHING;
END $$;

-- Opens sessions; an existing one keeps its end. Its row is locked in either case, so that the session cannot end while its worker
-- gets a run; the lock is shared with other claims and with heartbeats.
CREATE FUNCTION onward.open_sessions(workers text[], times bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH known AS MATERIALIZED (SELECT s.worker FROM onward.sessions s WHERE s.worker = ANY(workers) ORDER BY s.worker FOR KEY SHARE)
    INSERT INTO onward.sessions AS s (worker, until)
    SELECT u.worker, u.until FROM unnest(workers, times) AS u(worker, until) WHERE u.worker NOT IN (SELECT k.worker FROM known k)
    ON CONFLICT (worker) DO UPDATE SET until = s.until;
END $$;

CREATE FUNCTION onward.put_ledger(text[], bigint[], text[], int[], bigint[], bytea[], text[], bytea[], bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.ledger(ns, day, id, generation, incarnation, model, tree, data, crc)
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (ns, day, id, generation, incarnation, model) DO UPDATE SET tree = excluded.tree, data = excluded.data, crc = excluded.crc;
END $$;
