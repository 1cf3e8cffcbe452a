-- Runs that are started together go on together, so many rows of one page are written anew in one transaction: most of a page
-- is left for that, and a commit then changes no index. It holds for pages that are filled from now on.
ALTER TABLE onward.runs SET (fillfactor = 30);

-- What every batch asks and writes, as functions: a session keeps the plans of what a function does, and nobody has to promise that the
-- next transaction gets the same session. They decide nothing. Servers of two versions may call them at the same time: a function is
-- never changed, a new one gets a new name.

-- The settings of a transaction, the locks of its runs in the order of their numbers, and behind them the open children of those that may
-- end, numbers for new runs, and what the database says of itself. `positions` and `child_positions` count from 1 in the names given.
CREATE FUNCTION onward.enter(ns text[], ids text[], parents int[], fresh int, is_dim boolean,
  OUT positions bigint[], OUT numbers bigint[], OUT ready bigint[], OUT workers text[], OUT heads bytea[],
  OUT child_positions int[], OUT child_heads bytea[], OUT fresh_numbers bigint[],
  OUT clock bigint, OUT floor bigint, OUT is_denied boolean, OUT table_number bigint, OUT written bigint, OUT running_since bigint)
LANGUAGE plpgsql AS $$
BEGIN
  -- Every statement of a transaction that writes finds its rows through an index, a few for each run. The planner would rather read a
  -- table that it believes to be small, and is wrong as soon as it has grown; so it is not given the choice. A server that stands still
  -- between two statements must not hold its locks for as long as it does.
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true);
  -- While there are few runs, one index looks as good as another to the planner: a plan that is kept is made when only the right one does.
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
      FROM onward.lineage l WHERE l.only_one;
  ELSE
    SELECT l.floor, l.location = '', l.tableoid::bigint, (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint,
        (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
      INTO floor, is_denied, table_number, written, running_since FROM onward.lineage l WHERE l.only_one;
  END IF;
  -- Behind the locks: nothing is decided by a time at which somebody else still decided.
  clock := extract(epoch FROM clock_timestamp()) * 1000000;
END $$;

-- Heads of runs of which nothing changes that is indexed.
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

-- In those that follow, the first arrays name what goes: whole runs where there is one array, then rows by their keys.
CREATE FUNCTION onward.put_slots(gone bigint[], gone_keys bytea[], bigint[], bytea[], bytea[], bigint[], bigint[], bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(gone) > 0 THEN
    DELETE FROM onward.slots s USING unnest(gone, gone_keys) AS k(rk, key) WHERE s.rk = k.rk AND s.key = k.key;
  END IF;
  IF cardinality($3) > 0 THEN
    INSERT INTO onward.slots(rk, key, token, idx, at, crc) SELECT * FROM unnest($3, $4, $5, $6, $7, $8)
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

CREATE FUNCTION onward.put_news(bigint[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.outbox(rk, data) SELECT * FROM unnest($1, $2);
END $$;

CREATE FUNCTION onward.put_blobs(bigint[], bytea[], bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.blobs(rk, hash, data) SELECT * FROM unnest($1, $2, $3) ON CONFLICT DO NOTHING;
END $$;

-- A worker that is known keeps its time. Its row is locked in either case, so that it cannot be forgotten while it gets a run; shared with
-- others that give it runs, and with its heartbeats.
CREATE FUNCTION onward.greet(workers text[], times bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH known AS MATERIALIZED (SELECT s.worker FROM onward.sessions s WHERE s.worker = ANY(workers) ORDER BY s.worker FOR KEY SHARE)
    INSERT INTO onward.sessions AS s (worker, until)
    SELECT u.worker, u.until FROM unnest(workers, times) AS u(worker, until) WHERE u.worker NOT IN (SELECT k.worker FROM known k)
    ON CONFLICT (worker) DO UPDATE SET until = s.until;
END $$;
