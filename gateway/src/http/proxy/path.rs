//! Paths of upstreams: which of them could be read in two ways.
//!
//! The gateway fences one path and the upstream acts on one path. If an upstream could take a path for
//! another one than the gateway did, a writer would get past the fence of the resource that it changes. So
//! whatever some server decodes, collapses or turns around is refused, never repaired.

use percent_encoding::percent_decode;

/// Refuses a path that servers read in more than one way.
///
/// # Errors
/// What is wrong with it.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    let rest = path.strip_prefix('/').ok_or("it must begin with a slash")?;
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err("it has an empty segment");
        }
        check_segment(segment)?;
    }
    Ok(())
}

fn check_segment(segment: &str) -> Result<(), &'static str> {
    let bytes = segment.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        at += match bytes[at] {
            b'%' => {
                check_escape(&bytes[at + 1..])?;
                3
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) => 1,
            _ => return Err("it has a character that must be percent-encoded"),
        };
    }
    check_decoded(&percent_decode(bytes).collect::<Vec<u8>>())
}

/// What a server sees that has decoded a segment once, and now cuts it or decodes it again.
fn check_decoded(segment: &[u8]) -> Result<(), &'static str> {
    // Some servers cut parameters off before they look at the dots.
    if let Some(b"." | b"..") = segment.split(|byte| *byte == b';').next() {
        return Err("it has a dot segment");
    }
    let escape = |three: &[u8]| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit);
    match segment.windows(3).any(escape) {
        true => Err("it is percent-encoded twice"),
        false => Ok(()),
    }
}

/// What follows a percent sign.
fn check_escape(rest: &[u8]) -> Result<(), &'static str> {
    let hex = |digits: &[u8]| match digits {
        [high, low, ..] => {
            let digit = |byte: &u8| char::from(*byte).to_digit(16);
            Some(digit(high)? * 16 + digit(low)?)
        }
        _ => None,
    };
    match hex(rest) {
        None => Err("a '%' must be followed by two hexadecimal digits"),
        Some(0x00..=0x1f | 0x7f) => Err("it has a control character"),
        Some(0x2e) => Err("a dot is sent as it is, not as %2E"),
        Some(0x2f) => Err("it has an encoded slash"),
        Some(0x5c) => Err("it has a backslash"),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_be_read_two_ways_are_refused() {
        for good in
            ["/", "/a", "/a/", "/a/b.c/~d", "/a;v=1/b", "/caf%C3%A9", "/100%25", "/...", "/.a"]
        {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "a",
            "//a",
            "/a//b",
            "/./a",
            "/a/..",
            "/a/../b",
            "/a/..;/b",
            "/.;x/b",
            "/%2e%2e/b",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a%00",
            "/a%0d%0a",
            "/a%7f",
            "/a%",
            "/a%4",
            "/a%zz",
            "/%252e%252e/b",
            "/a%25%32%66b",
            "/a%252%66b",
            "/a%25%2566",
            "/..%3bx/b",
            "/a b",
            "/a\"b",
            "/a<b",
            "/é",
            "/a|b",
            "/a^b",
            "/{a}",
            "/a#b",
            "/a?b",
        ] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }
}
