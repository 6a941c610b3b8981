-- A rowid table with a unique text key: in batches, inserts are faster than WITHOUT ROWID, because only the
-- small key goes to a random place and the row itself to the end.
CREATE TABLE pastes (
    id                TEXT PRIMARY KEY NOT NULL, -- 12 characters of base62, compared byte by byte
    created_at        INTEGER NOT NULL,          -- Unix milliseconds, by the clock that judges expiry
    expires_at        INTEGER NOT NULL,          -- the same, on a whole second; absolute
    size_bytes        INTEGER NOT NULL,          -- what was stored
    syntax            TEXT,
    delete_token_hash BLOB NOT NULL,             -- SHA-256 of the token's 22 characters
    body_sha256       BLOB NOT NULL,
    body_volume       INTEGER,                   -- where the body stands on one box
    body_offset       INTEGER
) STRICT;

-- For the sweeper alone.
CREATE INDEX pastes_by_expiry ON pastes (expires_at);
