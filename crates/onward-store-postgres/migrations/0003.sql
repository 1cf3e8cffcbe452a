-- Quotas of namespaces.

-- The few rows of quotas among those of kinds.
CREATE INDEX kinds_quota ON onward.kinds (ns) WHERE kind = 'quota:';

-- What a namespace spent on a day, divided among a few rows, so that transactions that add to it seldom wait for each other. A cost is
-- added by the transaction that writes its row of the ledger. Costs from before this migration are not in it.
CREATE TABLE onward.spent_days (
  ns text COLLATE "C" NOT NULL, day bigint NOT NULL, part int NOT NULL, cost bigint NOT NULL, PRIMARY KEY (ns, day, part));
CREATE INDEX spent_days_day ON onward.spent_days (day);

-- Adds costs, in the order of the names, to one part of each day. Removes some rows of days before the last argument.
CREATE FUNCTION onward.add_spent(text[], bigint[], bigint[], int, bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.spent_days AS s (ns, day, part, cost) SELECT u.ns, u.day, $4, u.cost
    FROM unnest($1, $2, $3) AS u(ns, day, cost)
    ON CONFLICT (ns, day, part) DO UPDATE SET cost = least(s.cost::numeric + excluded.cost, 9223372036854775807)::bigint;
  DELETE FROM onward.spent_days d USING (SELECT o.ns, o.day, o.part FROM onward.spent_days o WHERE o.day < $5
      ORDER BY o.day LIMIT 16 FOR UPDATE SKIP LOCKED) AS f
    WHERE d.ns = f.ns AND d.day = f.day AND d.part = f.part;
END $$;
