//! The page of each error code: where `type` of a problem document leads.

use fence_core::ErrorCode;

macro_rules! pages {
    ($($(#[$doc:meta])+ $code:ident, $text:literal, $status:literal, $retryable:literal, $class:ident, $calls:ident, $title:literal;)+) => {
        /// The page of a code, in Markdown.
        pub fn page(code: ErrorCode) -> &'static str {
            match code {
                $(ErrorCode::$code => include_str!(concat!("../../../docs/errors/", $text, ".md")),)+
            }
        }
    };
}

fence_core::each_code!(pages);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_begins_with_its_code_and_status() {
        for code in ErrorCode::ALL {
            let begin = format!("# {code}\n\nStatus {}", code.status());
            assert!(page(*code).starts_with(&begin), "{code}");
        }
    }

    /// `FENCE_TEST_WRITE_DOCS=1` writes it anew.
    #[test]
    fn the_index_lists_all_codes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/errors/README.md");
        let found = std::fs::read_to_string(path).unwrap();
        let head = "|---|---|---|---|\n";
        let mut index = found.split_once(head).unwrap().0.to_owned() + head;
        for code in ErrorCode::ALL {
            let (status, retryable) = (code.status(), if code.retryable() { "yes" } else { "no" });
            let title = code.title();
            index += &format!("| [`{code}`]({code}.md) | {status} | {retryable} | {title} |\n");
        }
        if std::env::var_os("FENCE_TEST_WRITE_DOCS").is_some() {
            std::fs::write(path, index).unwrap();
        } else {
            assert_eq!(found, index, "run this test with FENCE_TEST_WRITE_DOCS=1");
        }
    }
}
