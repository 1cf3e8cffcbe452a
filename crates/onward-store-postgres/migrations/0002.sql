-- Queues that are shared out between keys.

-- The key of a task; empty without one. It comes before the rank in the index of claimable tasks, so that the next key with tasks,
-- and the next task of a key, are one step each. The rank is that of `onward_core::queue::rank`.
ALTER TABLE onward.tasks ADD COLUMN qkey text COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX onward.tasks_ready;
CREATE INDEX tasks_ready ON onward.tasks (ns, queue, kind, qkey, (visible - priority::bigint * 60000), ord) WHERE state = 0;
-- The leases of a queue and of its keys, which are counted when a limit is checked.
CREATE INDEX tasks_held ON onward.tasks (ns, queue, qkey) WHERE state = 1;
-- The queues in which runs wait.
CREATE INDEX tasks_runs ON onward.tasks (ns, queue) WHERE state = 0 AND kind = 'queue:run';

-- What began lately in a queue (empty key) or for one of its keys, for rates. A row is removed once its period is over.
CREATE TABLE onward.queue_keys (
  ns text COLLATE "C" NOT NULL, queue text COLLATE "C" NOT NULL, qkey text COLLATE "C" NOT NULL, data bytea NOT NULL,
  until bigint NOT NULL, PRIMARY KEY (ns, queue, qkey));
CREATE INDEX queue_keys_until ON onward.queue_keys (until);

CREATE FUNCTION onward.put_keyed_tasks(cleared bigint[], gone bigint[], gone_call_ids bytea[],
  bigint[], bytea[], text[], text[], text[], text[], int[], bigint[], smallint[], bigint[], bigint[], bytea[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(cleared) > 0 THEN
    DELETE FROM onward.tasks WHERE rk = ANY(cleared);
  END IF;
  IF cardinality(gone) > 0 THEN
    DELETE FROM onward.tasks t USING unnest(gone, gone_call_ids) AS k(rk, call_id) WHERE t.rk = k.rk AND t.call_id = k.call_id;
  END IF;
  IF cardinality($4) > 0 THEN
    INSERT INTO onward.tasks(rk, call_id, ns, queue, qkey, kind, priority, ord, state, visible, due, data)
      SELECT * FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
      ON CONFLICT (rk, call_id) DO UPDATE SET ns = excluded.ns, queue = excluded.queue, qkey = excluded.qkey, kind = excluded.kind,
        priority = excluded.priority, ord = excluded.ord, state = excluded.state, visible = excluded.visible, due = excluded.due,
        data = excluded.data;
  END IF;
END $$;
