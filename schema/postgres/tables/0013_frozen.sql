-- Counts what operators have frozen without reading all resources. Few are, and nothing but a mark changes which.

CREATE INDEX fences_frozen ON fencegate.fences (resource) WHERE frozen IS NOT NULL;
