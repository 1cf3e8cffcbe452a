-- Names are compared byte for byte everywhere, so that all stores sort alike.

-- One row per run: its current head and who holds it. Narrow, because every commit writes it; nothing that is indexed changes with a
-- commit of a run that somebody holds, so that the row stays on its page.
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
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX runs_key ON onward.runs (ns, id);
CREATE INDEX runs_created ON onward.runs (ns, created DESC, id DESC);
CREATE INDEX runs_kind ON onward.runs (ns, kind, created DESC, id DESC);
CREATE INDEX runs_status ON onward.runs (ns, status, created DESC, id DESC);
CREATE INDEX runs_ready ON onward.runs (ns, kind, version, ready) WHERE ready IS NOT NULL;
CREATE INDEX runs_worker ON onward.runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_ended ON onward.runs (kind, ended) WHERE ended IS NOT NULL;
CREATE INDEX runs_parent ON onward.runs (parent_ns, parent_id) WHERE parent_id IS NOT NULL;
-- Never used twice, also not after a rollback: epochs begin with them.
CREATE SEQUENCE onward.run_numbers;

-- The heads of generations that have ended.
CREATE TABLE onward.past (
  rk bigint NOT NULL, generation int NOT NULL, head bytea NOT NULL, PRIMARY KEY (rk, generation));

CREATE TABLE onward.events (
  rk bigint NOT NULL, generation int NOT NULL, idx bigint NOT NULL, at bigint NOT NULL, crc bigint NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (rk, generation, idx)) WITH (autovacuum_vacuum_insert_scale_factor = 0.2);

-- What was taken once, over all generations. Ids are what somebody said, so they are bytes.
CREATE TABLE onward.slots (
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

-- News for other runs. The number orders them and is nobody's cursor: whoever delivers takes the oldest and removes it.
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

-- Until when a worker is believed to live.
CREATE TABLE onward.sessions (worker text COLLATE "C" PRIMARY KEY, until bigint NOT NULL);
CREATE INDEX sessions_until ON onward.sessions (until);

-- Servers that share the database, for people to see.
CREATE TABLE onward.servers (
  id text COLLATE "C" PRIMARY KEY, url text NOT NULL, version text NOT NULL, started bigint NOT NULL, heard bigint NOT NULL,
  until bigint NOT NULL);

-- What one server says to all; each is gone after half a minute.
CREATE TABLE onward.letters (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint NOT NULL, data bytea NOT NULL);
CREATE INDEX letters_at ON onward.letters (at);

-- Which one of several databases this is, once somebody has said so: one row at most.
CREATE TABLE onward.share (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), cluster text NOT NULL, position bigint NOT NULL, count bigint NOT NULL);
