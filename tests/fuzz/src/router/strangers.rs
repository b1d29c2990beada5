//! A stranger among those who may: whoever is known and may do nothing gets nowhere, whatever is asked, and whatever others
//! have done before.

use std::sync::LazyLock;

use axum::http::{HeaderValue, header};
use fencegate_access::ApiKey;

use super::script::{Call, split};
use super::{Answer, LONG, Views, World, checks};

/// What needs no credential, or no right.
const OPEN: [&str; 5] = ["/healthz", "/readyz", "/openapi.yaml", "/docs/errors/", "/status"];

/// Whoever may do everything, and whoever may nothing that there is.
static HOLDER: LazyLock<ApiKey> = LazyLock::new(|| ApiKey::generate().unwrap());
static STRANGER: LazyLock<ApiKey> = LazyLock::new(|| ApiKey::generate().unwrap());

/// The rules under which the script is played.
fn rules() -> String {
    let key = |key: &ApiKey| {
        let (id, digest) = (key.kid(), key.digest().to_hex());
        format!(
            "keys = [{{ id = \"{id}\", sha256 = \"{digest}\", expires = 2200-01-01T00:00:00Z }}]"
        )
    };
    format!(
        "[[roles]]\nname = \"all\"\nresources = [\"*\"]\nallow = [\"lock\", \"fence\", \"fence-force\", \"write\", \
         \"clear\", \"read\", \"list\", \"observe\", \"break\", \"freeze\", \"protect\", \"resolve\", \"delegate\", \
         \"admin\"]\n\
         [[roles]]\nname = \"none\"\nallow = [\"forward-read\"]\nupstreams = [\"none/here\"]\n\
         [[principals]]\nname = \"holder\"\nroles = [\"all\"]\n{}\n\
         [[principals]]\nname = \"stranger\"\nroles = [\"none\"]\n{}\n",
        key(&HOLDER),
        key(&STRANGER)
    )
}

/// Each request of the script is sent by the stranger first, with the tokens and ids that others were given: it changes
/// nothing and is told nothing. Then it is sent by the holder.
pub fn strangers(input: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut world = World::with(Some(rules()));
        world.clock.drive(LONG, world.engine.looked_around()).await.unwrap();
        for text in split(input) {
            let Some(call) = Call::read(text, &world.granted) else { continue };
            let before = standing(&world.views().await);
            if let Some(answer) = world.send(&by(&STRANGER, text, &world)).await {
                gets_nowhere(&call, &answer);
            }
            assert_eq!(before, standing(&world.views().await), "{} {}", call.method, call.uri);
            let call = by(&HOLDER, text, &world);
            if let Some(answer) = world.send(&call).await {
                world.granted.extend(checks::grant(&call, &answer));
            }
        }
    });
}

/// The same request, by whoever has this key.
fn by(key: &ApiKey, text: &[u8], world: &World) -> Call {
    let mut call = Call::read(text, &world.granted).unwrap();
    let shown = HeaderValue::try_from(format!("Bearer {}", key.reveal())).unwrap();
    call.headers.insert(header::AUTHORIZATION, shown);
    call
}

fn gets_nowhere(call: &Call, answer: &Answer) {
    let is_open = OPEN.iter().any(|open| call.uri.path().starts_with(open));
    let (method, uri, status) = (&call.method, &call.uri, answer.status);
    assert!(
        is_open || status.is_client_error(),
        "a stranger got {status} for {method} {uri}: {:?}",
        answer.body
    );
}

/// All of a resource that no time changes.
fn standing(views: &Views) -> Vec<String> {
    let of = |view: &fence_core::ports::ResourceView| {
        let (token, version, objects) = (view.token, view.version, view.objects);
        let marks = (&view.frozen, &view.protected, view.breaks_in_ms.is_some());
        let lock = (&view.owner, view.renewed_at, view.ttl);
        format!("{} {token} {version} {objects} {marks:?} {lock:?}", view.resource)
    };
    views.values().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "POST /locks\ncontent-type: application/json\n\n{\"resource\":\"r\"}";

    /// What the holder could not do a stranger could not be kept from.
    #[test]
    fn the_holder_gets_somewhere() {
        let write = "PUT /resources/r/objects/k\nx-fence-token: $0\nx-lock-id: #0\n\nx";
        let script = [LOCK, write, "GET /resources/r/objects/k", "DELETE /locks/#0"].join("\n%%\n");
        strangers(script.as_bytes());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut world = World::with(Some(rules()));
            let mut found = Vec::new();
            for text in split(script.as_bytes()) {
                let call = by(&HOLDER, text, &world);
                let answer = world.send(&call).await.unwrap();
                world.granted.extend(checks::grant(&call, &answer));
                found.push(answer.status.as_u16());
            }
            assert_eq!(found, [201, 201, 200, 204]);
        });
    }

    #[test]
    #[should_panic(expected = "a stranger got 201")]
    fn whoever_gets_somewhere_is_found() {
        let call = Call::read(LOCK.as_bytes(), &[]).unwrap();
        let status = axum::http::StatusCode::CREATED;
        let (headers, body) = (axum::http::HeaderMap::new(), bytes::Bytes::new());
        gets_nowhere(&call, &Answer { status, headers, body });
    }
}
