//! Tokens over real HTTP: each names one grant, and has to come with its lock's id where that is required.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::collections::HashSet;

use fence_tests::client::{Call, Client};
use futures::future::join_all;
use serde_json::json;

use crate::setup::{SetUp, on_both, random_id};

on_both!(
    grants_at_the_same_moment_have_tokens_of_their_own,
    where_lock_ids_are_required_a_token_alone_writes_nothing,
);

async fn grants_at_the_same_moment_have_tokens_of_their_own(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let mut tokens = HashSet::new();
    for round in 0..3 {
        let resource = |i| format!("job:{round}-{i}");
        let names: Vec<String> = (0..40).map(resource).collect();
        let locks = join_all(names.iter().map(|name| client.acquire(name, "10m"))).await;
        tokens.extend(locks.iter().map(|lock| lock.token));
        // Whoever mixes two of them up is refused.
        let late = client.put(&names[1], "k", "x").token(locks[0].token);
        late.send().await.refused(403, "fence-token-unknown");
    }
    assert_eq!(tokens.len(), 3 * 40);
}

async fn where_lock_ids_are_required_a_token_alone_writes_nothing(setup: SetUp) {
    let settings = setup.settings().await.flag("--require-lock-id", "on");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let writes: [fn(&Client) -> Call; 3] = [
        |client| client.put("job:1", "k", "x"),
        |client| client.delete("job:1", "k"),
        |client| client.delete_resource("job:1"),
    ];
    for write in writes {
        let alone = write(&client).token(lock.token).send().await;
        alone.refused(428, "lock-id-missing");
        let strangers =
            write(&client).token(lock.token).header("x-lock-id", random_id().to_string());
        strangers.send().await.refused(403, "lock-id-mismatch");
    }
    assert_eq!(client.version("job:1").await, 0, "nothing was written");
    let put = client.put("job:1", "k", "x").token(lock.token);
    put.header("x-lock-id", lock.id.to_string()).send().await.expect(201);

    // A fence without a lock has the id of the call that set it.
    let id = random_id();
    let fence = client.fence("job:2", &json!({ "id": id }));
    let token = fence.send().await.expect(201).json()["token"].as_str().unwrap().to_owned();
    let put = || client.put("job:2", "k", "x").header("x-fence-token", &token);
    put().send().await.refused(428, "lock-id-missing");
    put().header("x-lock-id", id.to_string()).send().await.expect(201);
}
