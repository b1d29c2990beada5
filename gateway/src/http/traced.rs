//! The trace of a request: what its caller says of it, and what an upstream is told.

use axum::http::{HeaderMap, HeaderValue};

use crate::spans::{Place, TRACEPARENT, TRACESTATE};

/// The caller's span, if one is named, once, in a form that leaves no doubt.
pub fn caller(headers: &HeaderMap) -> Option<Place> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => Place::parse(line.as_bytes()),
        _ => None,
    }
}

/// Tells an upstream under which span of ours it is asked. Where nothing is recorded here it is told what the caller said,
/// since nobody would find a span of ours.
pub fn hand_on(headers: &mut HeaderMap, ours: Option<Place>) {
    let Some(ours) = ours else { return };
    let caller = caller(headers);
    if caller.is_some() && !ours.is_sampled() {
        return;
    }
    if caller.is_none() {
        // It belongs to no trace that could be read.
        headers.remove(TRACESTATE);
    }
    if let Ok(ours) = HeaderValue::try_from(ours.to_string()) {
        headers.insert(TRACEPARENT, ours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn sent(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_caller_names_one_span() {
        assert_eq!(caller(&sent(&[])), None);
        assert_eq!(caller(&sent(&[(TRACEPARENT, CALLER)])), Place::parse(CALLER.as_bytes()));
        assert_eq!(caller(&sent(&[(TRACEPARENT, CALLER), (TRACEPARENT, CALLER)])), None);
        assert_eq!(caller(&sent(&[(TRACEPARENT, "00-nonsense")])), None);
    }

    #[test]
    fn an_upstream_is_told_what_is_recorded() {
        let place = Place::parse(CALLER.as_bytes()).expect("it is good");
        let told = |lines: &[_], ours| {
            let mut headers = sent(lines);
            hand_on(&mut headers, ours);
            let all = headers.get_all(TRACEPARENT).iter();
            let all = all.map(|line| line.to_str().unwrap_or_default().to_owned());
            (all.collect::<Vec<_>>(), headers.contains_key(TRACESTATE))
        };
        let ours = |is_sampled| Some(Place::new(place.trace.0, [7; 8], is_sampled));
        let text = |is_sampled| vec![ours(is_sampled).expect("it is there").to_string()];
        let named = [(TRACEPARENT, CALLER), (TRACESTATE, "a=b")];
        let unread = [(TRACEPARENT, "00-nonsense"), (TRACESTATE, "a=b")];
        assert_eq!(told(&named, None), (vec![CALLER.to_owned()], true));
        assert_eq!(told(&unread, None), (vec!["00-nonsense".to_owned()], true));
        assert_eq!(told(&named, ours(true)), (text(true), true));
        assert_eq!(told(&named, ours(false)), (vec![CALLER.to_owned()], true));
        assert_eq!(told(&unread, ours(true)), (text(true), false));
        assert_eq!(told(&[], ours(false)), (text(false), false));
        assert_eq!(told(&[], None), (vec![], false));
    }
}
