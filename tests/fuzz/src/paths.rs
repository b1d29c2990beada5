//! Paths of upstreams: the input is one.

use fencegate::config::Pattern;
use fencegate::http::proxy::check_path;

use crate::requests::decode;

/// A path that is forwarded means the same to a server that decodes it never, once or twice, that cuts
/// parameters off, or that collapses slashes and dots.
pub fn paths(input: &[u8]) {
    let Ok(path) = std::str::from_utf8(input) else { return };
    patterns(path);
    if check_path(path).is_err() {
        return;
    }
    assert!(path.starts_with('/') && path.is_ascii());
    let once = decode(path);
    let slashes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'/').count();
    assert_eq!(slashes(&once), slashes(path.as_bytes()), "an encoded slash");
    let lossy = String::from_utf8_lossy(&once);
    assert_eq!(decode(&lossy), lossy.as_bytes(), "encoded twice");
    assert!(!once.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\'));
    let segments: Vec<&str> = lossy[1..].split('/').collect();
    for (index, segment) in segments.iter().enumerate() {
        let plain = segment.split(';').next().unwrap();
        assert!(!matches!(plain, "." | ".."), "a dot segment");
        assert!(!segment.is_empty() || index + 1 == segments.len(), "an empty segment");
    }
}

/// A pattern prints as it was written, and finds in a path what stands at its place.
fn patterns(text: &str) {
    let Ok(pattern) = Pattern::parse(text) else { return };
    assert_eq!(pattern.to_string(), text);
    let path = text.replacen("{resource}", "x%20y", 1);
    assert_eq!(pattern.resource(&path), Some("x%20y"));
    assert_eq!(pattern.resource(&format!("{path}/more")), Some("x%20y"));
    assert_eq!(pattern.resource(&text.replacen("{resource}", "", 1)), None);
}
