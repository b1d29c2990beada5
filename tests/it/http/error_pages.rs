//! Every error code has a page, in the repository and at the gateway, and no page is left over.

use std::collections::BTreeSet;
use std::path::Path;

use fence_core::ErrorCode;
use fence_tests::gateway::Gateway;

fn pages() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors")
}

#[test]
fn the_pages_are_those_of_the_codes() {
    let listed = std::fs::read_dir(pages()).unwrap();
    let listed: BTreeSet<String> = listed
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    let expected: BTreeSet<String> =
        ErrorCode::ALL.iter().map(|code| format!("{code}.md")).collect();
    assert_eq!(listed, expected, "one page per code under docs/errors");
}

#[tokio::test]
async fn the_gateway_serves_the_pages_where_problems_point() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    for code in ErrorCode::ALL {
        let page = client.get(format!("/docs/errors/{code}")).send().await.expect(200);
        assert_eq!(page.must_have("content-type"), "text/markdown; charset=utf-8");
        let file = std::fs::read_to_string(pages().join(format!("{code}.md"))).unwrap();
        assert_eq!(page.text(), file, "{code}");
    }
    // Where the `type` of a problem leads there is the page of its code.
    let problem = client.get("/resources/never").send().await.refused(404, "resource-not-found");
    let page = client.get(problem.problem().kind).send().await.expect(200);
    assert!(page.text().contains("resource-not-found"));
}
