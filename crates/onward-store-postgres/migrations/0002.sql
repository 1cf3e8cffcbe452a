-- What a server says of those who work for it, for the other servers to show.
ALTER TABLE onward.servers ADD COLUMN roster bytea NOT NULL DEFAULT '';
