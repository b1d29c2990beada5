// Node's own transport where the platform's `fetch` cannot help: certificates, and connections that are not made.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createSecureServer } from "node:https";
import { createServer, type AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Unavailable } from "../../src/index.js";
import { fromEnv, nodeFetch } from "../../src/node/index.js";
import { Fencegate } from "../../src/node/main.js";
import { failure, until } from "./world.js";

test("a connection that is not made in time is given up, and nothing was sent", async () => {
  let connections = 0;
  const silent = createServer(() => void (connections += 1)).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const { port } = silent.address() as AddressInfo;
  // The connection is made, and the TLS in it never is.
  const fg = new Fencegate(`https://127.0.0.1:${port}`, {
    fetch: nodeFetch({ connectTimeoutMs: 100 }),
    retries: false,
  });
  try {
    const error = await failure(fg.acquire("r"));
    assert.ok(error instanceof Unavailable, String(error));
    assert.match(error.message, /no connection in time/);
    await until(() => connections > 0);
    // Had it been sent, its id would have been released, over another connection.
    assert.equal(connections, 1);
  } finally {
    silent.close();
  }
});

test("other certificates are trusted, and one is shown, as the environment says", async () => {
  const folder = mkdtempSync(join(tmpdir(), "fencegate-tls-"));
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test";
  const names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert];
  execFileSync("openssl", [...made.split(" "), ...names], { stdio: "pipe" });
  const pem = { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
  const server = createSecureServer({ ...pem, ca: pem.cert, requestCert: true, rejectUnauthorized: true });
  let shown: string | undefined;
  server.on("request", (request, response) => {
    shown = (request.socket as TLSSocket).getPeerCertificate().subject.CN as string;
    response.setHeader("x-request-id", request.headers["x-request-id"] ?? "");
    response.setHeader("content-type", "application/json").end('{"api":1}');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const before = { ...process.env };
  try {
    // What no wait can mend ends a call at once, however long it may go on.
    const untrusted = await failure(new Fencegate(url, { callTimeout: "1h" }).status());
    assert.ok(
      untrusted instanceof Unavailable && untrusted.message.includes(`the certificate of ${url} is not trusted`),
    );
    const plain = createServer((socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")).listen(0, "127.0.0.1");
    await once(plain, "listening");
    const noTls = `https://127.0.0.1:${(plain.address() as AddressInfo).port}`;
    for (const options of [{}, { fetch: nodeFetch() }]) {
      const error = await failure(new Fencegate(noTls, { callTimeout: "1h", ...options }).status());
      assert.ok(error instanceof Unavailable && error.message.includes(`no TLS is spoken at ${noTls}`), String(error));
    }
    // Where it is not known that nothing was sent, what changes something is asked for again, as its outcome is not known.
    const [over, broken] = [new AbortController(), Object.assign(new Error("broken"), { code: "EPROTO" })];
    let asked = 0;
    const breaks = (): Promise<never> => {
      asked += 1;
      return Promise.reject(new TypeError("failed", { cause: broken }));
    };
    const acquiring = failure(
      new Fencegate(noTls, { callTimeout: "1h", fetch: breaks }).acquire("r", { signal: over.signal }),
    );
    await until(() => asked > 1);
    over.abort();
    await acquiring;
    plain.close();
    const nobody = await failure(new Fencegate("http://127.0.0.1:1", { retries: false }).status());
    assert.match(String(nobody), /no gateway answers at http:\/\/127\.0\.0\.1:1: /);
    Object.assign(process.env, {
      FENCE_URL: url,
      FENCE_CA_FILE: cert,
      FENCE_CERT_FILE: cert,
      FENCE_KEY_FILE: key,
    });
    assert.equal((await fromEnv().status()).api, 1);
    assert.equal(shown, "test");
  } finally {
    process.env = before;
    server.closeAllConnections();
    server.close();
    rmSync(folder, { recursive: true });
  }
});
