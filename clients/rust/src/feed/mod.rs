//! Following (CC48, CC52): the feed of committed writes, and who leads.

mod connection;
pub mod events;
mod following;
pub mod observing;

pub use self::events::{EventStream, Events, FeedEvent, OnVoid};
pub use self::observing::{Leader, Observing};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::class::Class;
    use crate::error::Error;
    use crate::testing::scripted::{Act, play, problem, say};

    fn write(number: u32) -> String {
        format!(
            r#"{{"event":"g0-{number}","resource":"r","version":{number},"kind":"put","owner":"o",
                "operation":"67e55044-10b1-426f-9247-bb680e5fe0c8","committed_at":"2026-01-01T00:00:00Z"}}"#
        )
        .replace('\n', "")
    }

    fn stream(from: u32, numbers: &[u32]) -> Vec<Act> {
        let event =
            |number: &u32| format!("event: write\nid: g0-{number}\ndata: {}\n\n", write(*number));
        let events: String = numbers.iter().map(event).collect();
        let body = format!("id: g0-{from}\n\n{events}");
        vec![Act::Say("200 OK\r\ncontent-type: text/event-stream".into(), body.into())]
    }

    fn page(numbers: &[u32], next: u32) -> Vec<Act> {
        let items: Vec<_> = numbers.iter().map(|number| write(*number)).collect();
        let body = format!(r#"{{"items":[{}],"next_cursor":"g0-{next}"}}"#, items.join(","));
        vec![say("200 OK", "", &body)]
    }

    async fn numbers(events: &mut EventStream, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        while found.len() < count {
            found.push(events.next().await.unwrap().unwrap().cursor().to_owned());
        }
        found
    }

    #[tokio::test]
    async fn each_event_comes_once_across_breaks_and_strangers() {
        let (client, came) = play(|nth, _| match nth {
            0 => stream(0, &[1, 2]),
            1 => Vec::new(),
            2 => vec![Act::Interfere("502 Bad Gateway".into())],
            3 => vec![problem(503, "overloaded", r#","retry_after_ms":10"#)],
            4 => stream(1, &[2, 3]),
            5 => vec![Act::Interfere("429 Too Many Requests".into())],
            _ => stream(3, &[4]),
        })
        .await;
        let mut events = client.events().stream();
        assert_eq!(numbers(&mut events, 4).await, ["g0-1", "g0-2", "g0-3", "g0-4"]);
        assert_eq!(events.cursor().as_deref(), Some("g0-4"));
        let came = came.lock().unwrap();
        assert!(
            came[0].starts_with("GET /events HTTP")
                && came[4].starts_with("GET /events?after=g0-2 ")
        );
        assert!(came.iter().all(|head| head.contains("accept: text/event-stream")));
    }

    #[tokio::test]
    async fn what_ends_at_once_is_not_asked_in_a_busy_loop() {
        for is_stream in [true, false] {
            let (client, came) = play(move |_, _| match is_stream {
                true => stream(7, &[]),
                false => page(&[3], 7),
            })
            .await;
            let mut events = client.events().after("g0-7".to_owned()).stream();
            assert!(tokio::time::timeout(Duration::from_secs(3), events.next()).await.is_err());
            let count = came.lock().unwrap().len();
            assert!((3..15).contains(&count), "{count}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_is_held_back_is_asked_call_by_call() {
        let (client, came) = play(|nth, head| match head.contains("text/event-stream") {
            true => vec![Act::Pause(Duration::from_secs(60))],
            false if nth == 1 => page(&[1], 1),
            false => page(&[2], 2),
        })
        .await;
        let mut events = client.events().stream();
        assert_eq!(numbers(&mut events, 2).await, ["g0-1", "g0-2"]);
        let came = came.lock().unwrap();
        assert!(came[2].starts_with("GET /events?after=g0-1&limit=1000&wait=25000ms "));
    }

    #[tokio::test]
    async fn a_failed_poll_leads_back_to_streams() {
        let (client, _) = play(|nth, _| match nth {
            0 => page(&[1], 1),
            1 => vec![Act::Interfere("502 x".into())],
            _ => stream(1, &[2]),
        })
        .await;
        // The first answer is no stream, and is taken for that of a proxy which holds streams back.
        assert_eq!(numbers(&mut client.events().stream(), 1).await, ["g0-2"]);
    }

    #[tokio::test]
    async fn a_void_place_ends_it_or_is_told() {
        let void = |nth, _: &str| match nth {
            0 => vec![problem(410, "events-cursor-void", r#","begin_after":"g1-0""#)],
            _ => stream(8, &[9]),
        };
        let (client, _) = play(void).await;
        let mut events = client.events().after("g0-7".to_owned()).stream();
        let ended = events.next().await.unwrap().unwrap_err();
        assert!(
            matches!(ended, Error::CursorVoid { begin_after } if begin_after.as_deref() == Some("g1-0"))
        );
        assert!(events.next().await.is_none());
        let (client, came) = play(void).await;
        let mut events =
            client.events().after("g0-7".to_owned()).on_void(OnVoid::Continue).stream();
        assert!(matches!(events.next().await, Some(Ok(FeedEvent::Void { .. }))));
        assert!(events.next().await.unwrap().unwrap().write().is_some());
        assert!(came.lock().unwrap()[1].starts_with("GET /events?after=g1-0 "));
    }

    #[tokio::test]
    async fn a_definite_refusal_ends_it() {
        for (act, class) in [(0, Class::GatewayFault), (1, Class::Denied), (2, Class::Misuse)] {
            let (client, _) = play(move |_, _| match act {
                0 => vec![Act::Interfere("404 Not Found".into())],
                1 => vec![Act::Interfere("403 Forbidden".into())],
                _ => vec![problem(400, "query-malformed", "")],
            })
            .await;
            let mut events = client.events().stream();
            assert_eq!(events.next().await.unwrap().unwrap_err().class(), class);
            assert!(events.next().await.is_none());
        }
    }

    #[tokio::test]
    async fn a_client_has_sixteen_streams_and_no_more() {
        let (client, came) = play(|_, head| match head.contains("text/event-stream") {
            true => [stream(0, &[1]), vec![Act::Pause(Duration::from_secs(60))]].concat(),
            false => page(&[1], 1),
        })
        .await;
        let mut open = Vec::new();
        for _ in 0..17 {
            let mut events = client.events().stream();
            assert_eq!(numbers(&mut events, 1).await, ["g0-1"]);
            open.push(events);
        }
        let streamed =
            |came: &[String]| came.iter().filter(|head| head.contains("event-stream")).count();
        assert_eq!(streamed(&came.lock().unwrap()), 16);
        open.clear();
        assert_eq!(numbers(&mut client.events().stream(), 1).await, ["g0-1"]);
        assert_eq!(streamed(&came.lock().unwrap()), 17);
        client.close(Duration::ZERO).await;
        assert!(client.events().stream().next().await.is_none());
    }

    fn resource(owner: &str, tag: &str) -> Vec<Act> {
        let body = format!(
            r#"{{"resource":"r","owner":"{owner}","state":"leased","acquired_at":"2026-01-01T00:00:00Z"{tag}}}"#
        );
        vec![say("200 OK", "", &body)]
    }

    #[tokio::test]
    async fn who_leads_is_told_with_each_change() {
        let (client, came) = play(|nth, _| match nth {
            0 => vec![problem(404, "resource-not-found", "")],
            1 => resource("a", r#","state_tag":"1""#),
            2 => resource("a", r#","state_tag":"2""#),
            3 => vec![Act::Interfere("502 x".into())],
            _ => resource("b", r#","state_tag":"3""#),
        })
        .await;
        let mut leaders = client.observe("r");
        let mut next = async || leaders.next().await.unwrap().unwrap().map(|leader| leader.owner);
        assert_eq!(next().await, None);
        assert_eq!(next().await.as_deref(), Some("a"));
        assert_eq!(next().await.as_deref(), Some("b"));
        let came = came.lock().unwrap();
        assert!(came[2].starts_with("GET /resources/r?since=1&wait=25000ms "));
        assert!(came[3].starts_with("GET /resources/r?since=2&wait=25000ms "));
    }

    #[tokio::test]
    async fn an_older_gateway_is_asked_every_two_seconds() {
        let (client, came) = play(|nth, head| match (nth, head.contains("since=")) {
            (0, _) => resource("a", r#","state_tag":"1""#),
            (_, true) => vec![problem(400, "query-malformed", "")],
            (_, false) => resource("a", ""),
        })
        .await;
        let mut leaders = client.observe("r");
        assert!(leaders.next().await.unwrap().unwrap().is_some());
        assert!(tokio::time::timeout(Duration::from_secs(5), leaders.next()).await.is_err());
        let count = came.lock().unwrap().len();
        assert!((3..6).contains(&count), "{count}");
    }

    #[tokio::test]
    async fn a_gateway_that_does_not_wait_is_not_asked_in_a_busy_loop() {
        let (client, came) = play(|_, _| resource("a", r#","state_tag":"1""#)).await;
        let mut leaders = client.observe("r");
        assert!(leaders.next().await.unwrap().unwrap().is_some());
        assert!(tokio::time::timeout(Duration::from_secs(3), leaders.next()).await.is_err());
        let count = came.lock().unwrap().len();
        assert!((3..15).contains(&count), "{count}");
    }
}
