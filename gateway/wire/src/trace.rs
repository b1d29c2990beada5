//! A place in a trace, as the header `traceparent` says it (W3C Trace Context, version 00).

use std::fmt;

/// The header.
pub const TRACEPARENT: &str = "traceparent";
/// What vendors say beside it. It goes to upstreams as it came, and nowhere else.
pub const TRACESTATE: &str = "tracestate";

/// How long such a header is: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;

/// A span of somebody's: its trace, its own id, and whether it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which trace.
    pub trace: TraceId,
    /// Which span.
    pub span: [u8; 8],
    flags: u8,
}

/// The id of a trace; as text 32 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

impl Place {
    /// A place of our own.
    pub fn new(trace: [u8; 16], span: [u8; 8], is_sampled: bool) -> Self {
        Self { trace: TraceId(trace), span, flags: u8::from(is_sampled) }
    }

    /// What a header says. `None` for whatever is not exactly of version 00, in lower case, with ids that are not zero:
    /// tracing is no reason to refuse a request, and a doubtful parent is none.
    pub fn parse(header: &[u8]) -> Option<Self> {
        let header: &[u8; LENGTH] = header.try_into().ok()?;
        let [b'0', b'0', b'-', rest @ ..] = header else { return None };
        let (trace, rest) = (&rest[..32], &rest[32..]);
        let [b'-', rest @ ..] = rest else { return None };
        let (span, rest) = (&rest[..16], &rest[16..]);
        let [b'-', flags @ ..] = rest else { return None };
        let (trace, span, [flags]) = (digits(trace)?, digits(span)?, digits::<1>(flags)?);
        let is_none = trace == [0; 16] || span == [0; 8];
        (!is_none).then_some(Self { trace: TraceId(trace), span, flags })
    }

    /// Whether whoever made the span records it.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// Exactly so many bytes, of two digits each, in lower case.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let pairs: &[[u8; 2]; N] = pairs.try_into().ok()?;
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(text: u8) -> Option<u8> {
    match text {
        b'0'..=b'9' => Some(text - b'0'),
        b'a'..=b'f' => Some(text - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-", self.trace)?;
        write_digits(&self.span, f)?;
        write!(f, "-{:02x}", self.flags)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits(&self.0, f)
    }
}

fn write_digits(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_good_one_is_read_and_written_as_it_was() {
        for (text, is_sampled) in [
            (GOOD.to_owned(), true),
            (GOOD.replace("-01", "-00"), false),
            // Flags that level 1 does not know are kept, and decide nothing.
            (GOOD.replace("-01", "-fe"), false),
            (GOOD.replace("-01", "-ff"), true),
        ] {
            let place = Place::parse(text.as_bytes()).expect("it is good");
            assert_eq!((place.to_string(), place.is_sampled()), (text, is_sampled));
        }
        let place = Place::parse(GOOD.as_bytes()).expect("it is good");
        assert_eq!(place.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(place.span, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!(Place::new(place.trace.0, place.span, true), place);
    }

    #[test]
    fn anything_else_is_none() {
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
        ] {
            assert_eq!(Place::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            if let Some(place) = Place::parse(&bytes) {
                prop_assert_eq!(place.to_string().into_bytes(), bytes);
            }
        }

        #[test]
        fn one_changed_byte_is_read_as_it_is_or_not_at_all(at in 0..55_usize, byte in any::<u8>()) {
            let mut bytes = GOOD.as_bytes().to_vec();
            bytes[at] = byte;
            if let Some(place) = Place::parse(&bytes) {
                prop_assert_eq!(place.to_string().into_bytes(), bytes);
            }
        }
    }
}
