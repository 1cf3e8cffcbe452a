-- Where this database was when it was last written to, and below which no lease counts any more: one row. A copy that is put back, or a
-- standby that takes over, is found somewhere else than it says (set `location` to '' to say so by hand).
CREATE TABLE onward.lineage (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), location text NOT NULL, floor bigint NOT NULL);
INSERT INTO onward.lineage(location, floor) VALUES ('', 0);
