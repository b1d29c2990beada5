//! Mutants of the ledger, to see that a run notices them: of those that the simulation took long to catch, of what is
//! told of requests to upstreams, and of rules of access.

use fence_tests::mutants::{Edit, Mutant};

/// All of them.
pub const ALL: &[Mutant] = &[
    Mutant {
        name: "closed-is-not-applied",
        what: "an intent that somebody has closed is taken for a request that was never sent",
        edits: &[
            Edit {
                function: "resolve_intent",
                from: "SET closed = 'resolved', closed_at = acts.stamp(t), reason = p_reason",
                to: "SET closed = 'unsent', closed_at = acts.stamp(t)",
            },
            Edit {
                function: "sweep_intents",
                from: "SET closed = 'elapsed', closed_at = acts.stamp(u.closes_at)",
                to: "SET closed = 'unsent', closed_at = acts.stamp(u.closes_at)",
            },
        ],
    },
    Mutant {
        name: "delete-uploads-under-way",
        what: "blobs are deleted whose upload takes long, and can still be committed",
        edits: &[
            Edit {
                function: "tidy_blobs",
                from: "gone AS (DELETE FROM fencegate.blob_intents i USING old WHERE i.blob = old.blob\n             RETURNING i.blob, i.handle),",
                to: "gone AS (SELECT i.blob, i.handle FROM fencegate.blob_intents i
                              JOIN old ON i.blob = old.blob),",
            },
            Edit {
                function: "tidy_blobs",
                from: "SELECT g.blob, g.handle, t FROM gone g)",
                to: "SELECT g.blob, g.handle, t FROM gone g ON CONFLICT DO NOTHING)",
            },
        ],
    },
    Mutant {
        name: "no-principal",
        what: "a token is admitted whoever presents it",
        edits: &[Edit {
            function: "is_yours",
            from: "split_part(p_names, ' ', 1) IS NOT DISTINCT FROM f_principal",
            to: "true",
        }],
    },
    Mutant {
        name: "stale-rules-admitted",
        what: "what was allowed under older rules still has its effect",
        edits: &[Edit {
            function: "rules_moved",
            from: "coalesce(p_rules <> p_in_force, false)",
            to: "false",
        }],
    },
    Mutant {
        name: "no-sequence",
        what: "a sequence number that does not rise is admitted",
        edits: &[Edit {
            function: "judge",
            from: "WHEN p_seq <= f_seq THEN 'sequence_out_of_order'",
            to: "",
        }],
    },
    Mutant {
        name: "no-rollback-horizon",
        what: "replaced blobs are not kept for a ledger that goes back",
        edits: &[
            Edit {
                function: "tidy_blobs",
                from: "r.replaced_at <= t - p_replaced_blobs_s * interval '1 second'",
                to: "r.replaced_at <= t",
            },
            Edit {
                function: "tidy_blobs",
                from: "SELECT g.blob, acts.due(p_forgotten_s) FROM gone g",
                to: "SELECT g.blob, t FROM gone g",
            },
        ],
    },
];
