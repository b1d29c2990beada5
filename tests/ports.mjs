// Ports for servers that come back at the same address. No other test takes one, in whatever process and language: each
// has a file in a folder, which is locked for as long as the process lives that took it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir } from "node:fs/promises";
import { createServer } from "node:net";

const FOLDER = "/tmp/fence-ports";
/** Below those that the system gives to connections and to whoever asks for any port. */
const PORTS = { first: 10_000, count: 20_000 };
const TRIES = 1_000;

/** Takes a port for as long as this process lives. */
export async function reservedPort() {
  // Other users reserve ports there, too. Whoever has made it lets them in.
  if ((await mkdir(FOLDER, { recursive: true })) !== undefined) await chmod(FOLDER, 0o777);
  for (let tried = 0; tried < TRIES; tried += 1) {
    const port = PORTS.first + Math.floor(Math.random() * PORTS.count);
    const lock = await locked(`${FOLDER}/${port}`);
    if (lock !== undefined && (await isFree(port))) return port;
    lock?.stdin.end();
  }
  throw new Error(`of ${TRIES} ports none was free`);
}

/** Locks a file by a program, since Node cannot. It ends with its standard input, and so with this process. */
async function locked(path) {
  const command = ["--nonblock", "--no-fork", path, "sh", "-c", "echo locked; exec cat"];
  const child = spawn("flock", command, { stdio: ["pipe", "pipe", "inherit"] });
  const said = await Promise.race([once(child.stdout, "data"), once(child, "exit")]);
  if (!Buffer.isBuffer(said[0])) return undefined;
  for (const handle of [child, child.stdin, child.stdout]) handle.unref();
  return child;
}

function isFree(port) {
  return new Promise((resolve) => {
    const probe = createServer().once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}
