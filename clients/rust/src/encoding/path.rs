//! Names in paths and queries (CC4): every byte but `A-Z a-z 0-9 - . _ ~` as `%XX`, in keys also but `/`.

use fencegate_wire::{ObjectKey, ResourceName};

fn push(into: &mut String, text: &str, keep_slash: bool) {
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if plain || (keep_slash && byte == b'/') {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
            into.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
        }
    }
}

/// The path of a resource.
pub fn resource(name: &ResourceName) -> String {
    let mut path = String::from("/resources/");
    push(&mut path, name.as_str(), false);
    path
}

/// The path of an object.
pub fn object(name: &ResourceName, key: &ObjectKey) -> String {
    let mut path = resource(name);
    path.push_str("/objects/");
    push(&mut path, key.as_str(), true);
    path
}

/// A query: `?a=b&c=d`, or nothing.
pub fn query<'a>(parameters: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut query = String::new();
    for (name, value) in parameters {
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(name);
        query.push('=');
        push(&mut query, &value, false);
    }
    query
}

/// Text as a segment of a path.
pub fn segment(text: &str) -> String {
    let mut encoded = String::new();
    push(&mut encoded, text, false);
    encoded
}
