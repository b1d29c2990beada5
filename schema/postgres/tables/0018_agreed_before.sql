-- The longer times that were agreed before, for as long as something that was made under them has not outlived them.
CREATE TABLE fencegate.agreed_before (
    name  text COLLATE "C" NOT NULL,
    value text NOT NULL,
    until timestamptz NOT NULL,           -- by the ledger's own time; infinity if it was for ever
    PRIMARY KEY (name, value)
);
