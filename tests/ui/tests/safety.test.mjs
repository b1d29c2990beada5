// Nothing that somebody stored or wrote is ever more than text.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, dev, goTo, open, row, settled } from "./rig.mjs";

after(closeBrowser);

const MARKUP = `<img src=x onerror="globalThis.bitten=1"><script>globalThis.bitten=1</script>`;

test("names, keys, reasons and contents are shown as text", async (t) => {
  const callers = await dev(t);
  const long = `x${"y".repeat(255)}`;
  for (const resource of ["a#b+c=d,e@f:g~h", long]) await callers.lock("ä <b>owner</b> ü", resource);
  const lock = await callers.lock(MARKUP.slice(0, 200), "markup:1", "10m");
  const keys = ["<script>alert(1)</script>.html", "ä ö%2F+#?.txt", "שלום עולם.txt"];
  for (const key of keys) {
    const written = await callers.put(lock, key, `<!doctype html>${MARKUP}`, "text/html");
    assert.equal(written.status, 201, `${key} ${JSON.stringify(written.body)}`);
  }
  const reason = `${MARKUP} \u202Ereversed\u202C ${"r".repeat(700)}`;
  assert.equal((await callers.post("/resources/markup:1/freeze", { reason })).status, 200);

  const page = await open(t, callers);
  for (const resource of ["a#b+c=d,e@f:g~h", long]) {
    await page.getByRole("link", { name: resource, exact: true }).click();
    await page.getByRole("heading", { level: 1, name: resource }).waitFor();
    await page.locator(".facts").getByText("ä <b>owner</b> ü").waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(width <= 0, `${resource} makes the page ${width} pixels too wide`);
    await page.goBack();
  }
  await goTo(page, "resource?name=markup:1");
  await page.getByText(reason).first().waitFor();
  for (const key of keys) {
    await page.getByRole("button", { name: `Show ${key}` }).click();
    await page.getByLabel(`Contents of ${key}`).getByText(MARKUP).waitFor();
    await page.getByRole("button", { name: `Hide ${key}` }).click();
  }
  await goTo(page, "audit");
  await row(page, reason.slice(0, 60)).first().waitFor();
  await goTo(page, `search?for=${encodeURIComponent(MARKUP)}`);
  await page.getByText("Search for").waitFor();
  await settled(page);
  // Comes after those of images that the texts would be.
  await page.evaluate(
    () =>
      new Promise((resolve) => {
        const image = new Image();
        image.addEventListener("error", resolve);
        image.src = "/none.png";
      }),
  );
  assert.equal(await page.evaluate(() => globalThis.bitten), undefined);
  assert.equal(await page.locator("main img, main script, main b").count(), 0);
});

test("a key of S3 leads to no other path", async (t) => {
  const callers = await dev(t);
  const lock = await callers.lock("worker", "site", "10m");
  await callers.put(lock, "plain.txt", "what was stored");
  const page = await open(t, callers);
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  // The list is so where S3 tools write such keys, which the API itself does not take.
  await page.route("**/resources/site/objects?*", async (route) => {
    const answer = await route.fetch();
    const text = (await answer.text()).replaceAll("plain.txt", "../../../audit/export");
    await route.fulfill({ response: answer, body: text });
  });
  await goTo(page, "resource?name=site");
  await page.getByRole("button", { name: "Show ../../../audit/export" }).click();
  await page.getByText("a browser takes it for a way to another path").first().waitFor();
  assert.ok(!asked.some((path) => path.endsWith("/audit/export")), asked.join(" "));
  const told = await page.evaluate(async () => {
    const { at, atObject } = await import("/ui/api.js");
    const tried = (make) => {
      try {
        return make().pathname;
      } catch (error) {
        return error.constructor.name;
      }
    };
    const keys = ["a/../b", ".", "a/.", "a/..b/.c", "%2e%2e/a", "a\\..\\b"];
    return [tried(() => at(["resources", ".."])), ...keys.map((key) => tried(() => atObject("r", key)))];
  });
  const path = "/resources/r/objects/";
  const [no, ...good] = ["Misleading", "a/..b/.c", "%252e%252e/a", "a%5C..%5Cb"];
  assert.deepEqual(told, [no, no, no, no, ...good.map((key) => path + key)]);
});

test("a stored page has no power over this one", async (t) => {
  const callers = await dev(t);
  const lock = await callers.lock("worker", "site", "10m");
  const attack = `<!doctype html><script>fetch("/resources/site/break",{method:"POST",headers:{"content-type":"application/json"},body:'{"reason":"x","after":"0s"}'})</script>`;
  await callers.put(lock, "index.html", attack, "text/html");
  const allows = ["sandboxed", "Content Security Policy", "Blocked script"];
  const page = await open(t, callers, "", { allows });
  const refused = page.waitForEvent("console", (said) => allows.some((text) => said.text().includes(text)));
  await page.goto(`${callers.url}/resources/site/objects/index.html`);
  await refused;
  assert.equal((await callers.call("GET", "/resources/site")).body.state, "leased");
  // Nor is the page shown in a frame of another.
  const answer = await fetch(`${callers.url}/ui/`);
  const policy = answer.headers.get("content-security-policy") ?? "";
  for (const line of ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"])
    assert.ok(policy.includes(line), policy);
  assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
  assert.ok(!policy.includes("unsafe"));
});

test("a page of another site may neither read nor act", async (t) => {
  const callers = await dev(t);
  await callers.lock("worker", "site", "10m");
  const cross = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty" };
  for (const path of ["/locks", "/ui/app.js"]) assert.equal((await callers.browse(path, cross)).status, 403);
  const link = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
  assert.equal((await callers.browse("/ui/", link)).status, 200);
  assert.equal((await callers.browse("/locks", link)).status, 403);
  const people = await fetch(`${callers.url}/`, { headers: { accept: "text/html" }, redirect: "manual" });
  assert.deepEqual([people.status, people.headers.get("location")], [307, "/ui/"]);
  assert.equal((await callers.call("GET", "/")).status, 404);
  const first = await fetch(`${callers.url}/ui/app.js`);
  const again = await fetch(`${callers.url}/ui/app.js`, {
    headers: { "if-none-match": first.headers.get("etag") ?? "" },
  });
  assert.equal(again.status, 304);
});
