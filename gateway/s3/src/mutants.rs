//! Ways to take what nobody signed, on purpose, so that the tests can show that they would notice. Outside of tests there
//! are none: [`is`] is constantly `false`, and leaves nothing in a binary.

/// A way to take what nobody signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A header that is not signed is heeded.
    UnsignedHeaderHeeded,
    /// The signature of the last chunk is not checked.
    LastChunkUnchecked,
    /// The signature of the trailers is not checked.
    TrailersUnchecked,
    /// The authenticator in the id of a lock's key is not checked.
    KeyUnchecked,
}

/// Whether this one is switched on.
#[cfg(not(test))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

#[cfg(test)]
pub(crate) use on::is;

#[cfg(test)]
mod on {
    use std::cell::Cell;
    use std::panic::catch_unwind;

    use bytes::Bytes;
    use fencegate_wire::{LockId, Token};
    use http::{HeaderMap, HeaderValue, Method};
    use uuid::Uuid;

    use super::Mutant;
    use crate::key::{Keys, Root};
    use crate::sign::chunked::{Announced, ChunkError, Decoder, Encoder, Seed};
    use crate::sign::{PayloadHash, RequestHead, Shown, SignError, Signer};

    thread_local! {
        static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is(mutant: Mutant) -> bool {
        ON.get() == Some(mutant)
    }

    const SIGNER: Signer<'static> = Signer { id: "FG1TEST", secret: "secret", region: "eu-west-1" };
    const CHECKSUM: &str = "x-amz-checksum-crc32";

    fn with_host() -> HeaderMap {
        HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("127.0.0.1:9000"))])
    }

    fn head(headers: &HeaderMap) -> RequestHead<'_> {
        RequestHead { method: &Method::PUT, raw_path: "/lake/k", raw_query: "", headers }
    }

    fn signed(payload: PayloadHash) -> (HeaderMap, Option<Seed>) {
        let mut headers = with_host();
        let at = "2026-11-26T23:59:59Z".parse().expect("a time");
        let (more, seed) = SIGNER.sign(&head(&headers), payload, at).expect("it is signed");
        headers.extend(more);
        let is_chunked = matches!(payload, PayloadHash::Chunked { .. });
        (headers, is_chunked.then_some(seed))
    }

    /// Somebody on the way made a copy of a put.
    #[test]
    fn a_header_that_nobody_signed_is_refused() {
        let (mut headers, _) = signed(PayloadHash::Unsigned);
        assert!(matches!(Shown::of(&head(&headers)), Ok(Some(_))));
        headers.insert("x-amz-copy-source", HeaderValue::from_static("/lake/other"));
        let shown = Shown::of(&head(&headers)).map(|_| ());
        assert_eq!(shown, Err(SignError::NotSigned("x-amz-copy-source".to_owned())));
    }

    /// What comes of a signed body of one chunk, and a trailer or none, in which the last `from` is `to` instead.
    fn changed(trailer: bool, from: &str, to: &str) -> Result<(), ChunkError> {
        let seed = signed(PayloadHash::Chunked { signed: true, trailer }).1;
        let mut encoder = Encoder::new(seed.clone());
        let trailers = [(CHECKSUM, "NhCmhg==")];
        let chunk = encoder.chunk(b"hello");
        let body = [chunk, encoder.end(trailer.then_some(&trailers[..]))].concat();
        let mut body = String::from_utf8(body).expect("text");
        let at = body.rfind(from).expect("it is there");
        body.replace_range(at..at + to.len(), to);
        let trailers = if trailer { vec![CHECKSUM.to_owned()] } else { Vec::new() };
        let mut decoder = Decoder::new(Announced { length: 5, trailers }, seed, trailer);
        let mut rest = Bytes::from(body);
        while decoder.decode(&mut rest)?.is_some() {}
        decoder.end().map(drop)
    }

    /// Without it a body could be cut off behind any chunk.
    #[test]
    fn the_signature_of_the_last_chunk_is_checked() {
        let wrong = format!("0;chunk-signature={}", "0123456789abcdef".repeat(4));
        let told = changed(false, "0;chunk-signature=", &wrong);
        assert_eq!(told, Err(ChunkError::DoesNotMatch("a chunk")));
    }

    #[test]
    fn the_signature_of_the_trailers_is_checked() {
        let told = changed(true, "NhCmhg==", "AAAAAA==");
        assert_eq!(told, Err(ChunkError::DoesNotMatch("the trailers")));
    }

    /// The id of a lock's key with one other character is nobody's, and no key of another lock (I18).
    #[test]
    fn nobody_makes_up_a_key() {
        let keys = Keys::new(&[Root::parse(&"07".repeat(32)).expect("a root")]).expect("keys");
        let token = Token::new(7).expect("a token");
        let id = keys.of_lock(token, LockId(Uuid::from_u128(1))).id;
        // The second to last, all of whose bits are used.
        let at = id.len() - 2;
        let other = if id[at..].starts_with('A') { 'I' } else { 'A' };
        let made_up = format!("{}{other}{}", &id[..at], &id[at + 1..]);
        assert!(keys.read(&made_up).is_none(), "somebody's: {made_up}");
    }

    /// What the test says with this mutant; none if it passes.
    fn failure(mutant: Mutant, test: fn()) -> Option<String> {
        ON.set(Some(mutant));
        let ended = catch_unwind(test);
        ON.set(None);
        let said = ended.err()?;
        let text = said.downcast_ref::<String>().cloned();
        Some(
            text.or_else(|| said.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_default(),
        )
    }

    #[test]
    fn each_mutant_is_caught() {
        let caught_by: [(Mutant, fn(), &str); 4] = [
            (Mutant::UnsignedHeaderHeeded, a_header_that_nobody_signed_is_refused, "left: Ok(())"),
            (
                Mutant::LastChunkUnchecked,
                the_signature_of_the_last_chunk_is_checked,
                "left: Ok(())",
            ),
            (Mutant::TrailersUnchecked, the_signature_of_the_trailers_is_checked, "left: Ok(())"),
            (Mutant::KeyUnchecked, nobody_makes_up_a_key, "somebody's"),
        ];
        for (mutant, test, says) in caught_by {
            let told = failure(mutant, test).unwrap_or_else(|| panic!("{mutant:?} is not caught"));
            assert!(told.contains(says), "{mutant:?}: {told}");
            test();
        }
    }
}
