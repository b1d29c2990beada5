-- Who may do what: nobody anything, but the role that runs the migrations, until an operator says so.
--
-- Functions can be executed by everybody unless that is revoked. Whom an operator trusts with guard, guard_all and
-- require_guard is theirs to say (docs/tables.md); all others are the gateways' own. Tables need no word: nobody
-- has a right on them, so nobody can read or lock them.
REVOKE ALL ON ALL ROUTINES IN SCHEMA fencegate FROM PUBLIC;
