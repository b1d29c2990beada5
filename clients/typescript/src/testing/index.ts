// For your own tests: a real gateway in memory, and a lock that can be lost.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { resourceNames } from "../core/names.js";
import { checked, type Names } from "../core/options.js";
import { asyncDispose } from "../dispose.js";
import { Busy, Misuse, NotFound, Unavailable, type LossReason } from "../index.js";
import { fakeLock as makeFakeLock, type FakeLock } from "./fake.js";
import { Fencegate } from "../node/main.js";
import type { Lock } from "../index.js";

export type { FakeLock };

/** Names the program that is started, if it is not `fencegate` on the path. */
const PROGRAM = "FENCE_TEST_GATEWAY";
const STARTS_WITHIN_MS = 120_000;
/** How often a lock is broken for a rival, before somebody else is always faster. */
const TAKE_OVERS = 5;

/** Options of a gateway for tests. */
export interface GatewayOptions {
  /** More arguments of `fencegate dev`, such as `["--cors-origin", "http://localhost:3000"]`. */
  readonly args?: readonly string[] | undefined;
}

const GATEWAY_NAMES: Names<GatewayOptions> = { args: "value" };

/** A gateway of your own, which forgets everything when it ends. */
export class Gateway {
  /** Where it listens. */
  readonly url: string;
  /** A client of it, always the same. */
  readonly client: Fencegate;
  readonly #process: ChildProcess;
  readonly #pid: number;

  /** @internal */
  constructor(url: string, pid: number, process: ChildProcess) {
    this.url = url;
    this.client = new Fencegate(url);
    this.#process = process;
    this.#pid = pid;
  }

  /** Stops it in its tracks, as a machine that hangs: it answers nothing, and closes nothing. Waits until it stands. */
  async pause(): Promise<void> {
    process.kill(this.#pid, "SIGSTOP");
    for (let looks = 0; looks < 100 && !(await this.#stands()); looks += 1) await sleep(10);
  }

  /** Whether all its threads are stopped. Without `/proc` nobody can tell, and it gets some time. */
  async #stands(): Promise<boolean> {
    const folder = `/proc/${this.#pid}/task`;
    const threads = await readdir(folder).catch(() => []);
    // Its state comes behind the name of the program.
    const stats = await Promise.all(threads.map((one) => readFile(`${folder}/${one}/stat`, "utf8").catch(() => "")));
    return stats.length > 0 && stats.every((stat) => /\) T /.test(stat));
  }

  /** Lets it go on. */
  resume(): void {
    process.kill(this.#pid, "SIGCONT");
  }

  /** Ends it at once, as `kill -9`, and waits until it is gone. */
  async kill(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const gone = once(this.#process, "exit");
    this.#process.ref();
    // What was started may be a script that waits for the gateway.
    process.kill(this.#pid, "SIGKILL");
    this.#process.kill("SIGKILL");
    await gone;
  }

  /**
   * Takes the lock on a resource from whoever holds it: breaks it, and locks it for a rival, whose lock is yours to
   * release. What the first holder writes then bounces.
   */
  async takeOver(resource: string): Promise<Lock> {
    for (let turn = 0; turn < TAKE_OVERS; turn += 1) {
      try {
        await this.client.admin.break(resource, "taken over in a test");
      } catch (error) {
        if (!(error instanceof NotFound)) throw error;
      }
      try {
        return await this.client.acquire(resource, { owner: "rival" });
      } catch (error) {
        if (!(error instanceof Busy)) throw error;
      }
    }
    throw new Unavailable("somebody else always takes the lock first");
  }

  /** For `await using`: ends it. */
  async [asyncDispose](): Promise<void> {
    await this.kill();
  }
}

/**
 * Starts a real gateway with everything in memory: the program `fencegate`, found on the path unless
 * `FENCE_TEST_GATEWAY` names it. It ends with `kill()`, and with this process.
 *
 * @throws Misuse: the program cannot be started, or ends without saying where it listens.
 */
export async function startGateway(options: GatewayOptions = {}): Promise<Gateway> {
  const { args = [] } = checked("startGateway()", options, GATEWAY_NAMES);
  const program = process.env[PROGRAM] || "fencegate";
  const wrong = (why: string): Misuse =>
    new Misuse(
      `no gateway for tests: \`${program} dev\` ${why}; put fencegate on the path, or its path into ${PROGRAM}`,
    );
  // It ends when its standard input does.
  const child = spawn(program, ["dev", ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const line = await new Promise<string>((resolve, reject) => {
    const late = setTimeout(() => reject(wrong("said nothing for two minutes")), STARTS_WITHIN_MS);
    child.once("error", (error) => reject(wrong(`did not start: ${error.message}`)));
    child.once("exit", () => reject(wrong("ended without saying where it listens")));
    createInterface({ input: child.stdout }).once("line", resolve);
    child.once("spawn", () => child.stdin.on("error", () => {}));
    child.once("close", () => clearTimeout(late));
    child.stdout.once("data", () => clearTimeout(late));
  }).catch((error: unknown) => {
    child.kill("SIGKILL");
    throw error;
  });
  try {
    const { url, pid } = JSON.parse(line) as { url: string; pid: number };
    // A test that is over need not wait for its gateway.
    child.unref();
    for (const stream of [child.stdin, child.stdout]) (stream as unknown as { unref(): void }).unref();
    return new Gateway(url, pid, child);
  } catch {
    child.kill("SIGKILL");
    throw wrong(`did not say where it listens: ${JSON.stringify(line.slice(0, 200))}`);
  }
}

/** Options of a fake lock. */
export interface FakeLockOptions {
  readonly token?: string | undefined;
}

const FAKE_NAMES: Names<FakeLockOptions> = { token: "text" };

/**
 * A lock without a gateway, to test how your work takes a loss: `lock.lose("superseded")`. There is no storage behind
 * it: its writes are `Misuse`. For those, `startGateway` has a real one.
 */
export function fakeLock(resources: string | readonly string[] = "fake", options: FakeLockOptions = {}): FakeLock {
  const { token = "1" } = checked("fakeLock()", options, FAKE_NAMES);
  return makeFakeLock(resourceNames(resources), token);
}

export type { LossReason };
