-- What was spent: the sum of what one log says of one model on one day. Rows belong to no run of the table of runs and stay when theirs is
-- deleted; the life tells a log from another one that had its name. They change under the lock of their run.
CREATE TABLE onward.ledger (
  ns text COLLATE "C" NOT NULL, day bigint NOT NULL, id text COLLATE "C" NOT NULL, generation int NOT NULL, life bigint NOT NULL,
  model bytea NOT NULL, tree text COLLATE "C" NOT NULL, data bytea NOT NULL, crc bigint NOT NULL,
  PRIMARY KEY (ns, day, id, generation, life, model));
CREATE INDEX ledger_tree ON onward.ledger (ns, tree);

CREATE FUNCTION onward.put_ledger(text[], bigint[], text[], int[], bigint[], bytea[], text[], bytea[], bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO onward.ledger(ns, day, id, generation, life, model, tree, data, crc)
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (ns, day, id, generation, life, model) DO UPDATE SET tree = excluded.tree, data = excluded.data, crc = excluded.crc;
END $$;
