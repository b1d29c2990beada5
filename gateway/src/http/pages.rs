//! The page of each error code: where `type` of a problem document leads.

macro_rules! pages {
    ($($code:literal)+) => {
        /// The page of a code, in Markdown.
        pub fn page(code: &str) -> Option<&'static str> {
            match code {
                $($code => Some(include_str!(concat!("../../../docs/errors/", $code, ".md"))),)+
                _ => None,
            }
        }
    };
}

pages! {
    "fence-token-missing"
    "fence-token-malformed"
    "fence-token-void"
    "fence-token-unknown"
    "fence-token-stale"
    "fence-token-released"
    "fence-token-broken"
    "fence-order-stale"
    "lock-id-mismatch"
    "lock-id-missing"
    "resource-frozen"
    "resource-draining"
    "resource-protected"
    "sequence-out-of-order"
    "version-mismatch"
    "idempotency-key-reused"
    "idempotency-in-progress"
    "lock-held"
    "lock-wait-elapsed"
    "queue-full"
    "lock-superseded"
    "lock-released"
    "lock-broken"
    "lock-void"
    "lock-breaking"
    "lock-hold-exceeded"
    "lock-id-conflict"
    "lock-not-found"
    "resource-not-found"
    "object-not-found"
    "version-not-retained"
    "operation-not-found"
    "upstream-not-found"
    "upstream-path-invalid"
    "events-cursor-void"
    "request-malformed"
    "host-not-served"
    "origin-forbidden"
    "body-malformed"
    "query-malformed"
    "digest-mismatch"
    "resource-name-invalid"
    "object-key-invalid"
    "route-not-found"
    "method-not-allowed"
    "request-timeout"
    "payload-too-large"
    "uri-too-long"
    "unsupported-media-type"
    "range-not-satisfiable"
    "headers-too-large"
    "internal"
    "blob-missing"
    "overloaded"
    "ledger-unavailable"
    "resource-busy"
    "blobs-unavailable"
    "upload-expired"
    "mint-unavailable"
    "mint-regressed"
    "refence-required"
    "outcome-unknown"
    "upstream-unreachable"
    "upstream-failed"
    "upstream-timeout"
    "shutting-down"
}

#[cfg(test)]
mod tests {
    use super::*;
    use fence_core::ErrorCode;

    #[test]
    fn every_code_has_a_page_and_is_in_the_index() {
        let index = include_str!("../../../docs/errors/README.md");
        for code in ErrorCode::ALL {
            let page = page(code.as_str()).unwrap_or_else(|| panic!("no page for {code}"));
            assert!(page.starts_with(&format!("# {code}\n")), "{code}");
            assert!(page.contains(&format!("Status {}", code.status())), "{code}");
            assert!(
                index.contains(&format!("[`{code}`]({code}.md) | {}", code.status())),
                "{code}"
            );
        }
    }
}
