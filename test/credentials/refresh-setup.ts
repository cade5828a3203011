import { onTestFinished } from "vitest";
import type { CredentialError, CredentialOptions } from "../../src/credentials/index.ts";
import { findLeaks } from "../support/canary.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { RotatingServer } from "../support/rotating-server.ts";
import { TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { type Seen, VaultFake } from "../support/vault-fake.ts";
import { byToken, type Harness, open, refreshing } from "./harness.ts";

export const entry = "secret/data/mcp/rt";
const needed = 'path "secret/data/mcp/*" { capabilities = ["read", "create", "update"] }';

type Fields = Record<string, unknown>;

/** A scripted store, a server that rotates, and gateways that share one refresh token. */
export class RefreshBench {
  readonly clock = new ManualClock();
  readonly server = new RotatingServer(() => this.clock.now());
  readonly #gateways: Harness[] = [];

  readonly store: VaultFake;
  readonly endpoint: TokenEndpoint;

  private constructor(store: VaultFake, endpoint: TokenEndpoint) {
    this.store = store;
    this.endpoint = endpoint;
    endpoint.answer = this.server.answer;
  }

  /** With a good refresh token in the record, and `fields` beside it. At the end nothing secret may be in any log. */
  static async start(fields: Fields = {}): Promise<RefreshBench> {
    const bench = new RefreshBench(await VaultFake.start(), await TokenEndpoint.start());
    await bench.put({ refresh_token: bench.server.authorise(), ...fields });
    onTestFinished(() => bench.#end());
    return bench;
  }

  async #end(): Promise<void> {
    for (const { credentials } of this.#gateways) await this.settle(credentials.close());
    await this.store.stop();
    await this.endpoint.stop();
    const text = this.#gateways.flatMap(({ lines }) => lines).join("");
    const secrets = Object.fromEntries(this.server.issued.map((token, i) => [`token ${i}`, token]));
    const leaks = findLeaks([{ name: "log", text }], secrets);
    if (leaks.length > 0) throw new Error(`secrets in the log: ${JSON.stringify(leaks)}`);
  }

  async gateway(more: Partial<Extract<CredentialOptions, { type: "oauthRefreshToken" }>> = {}): Promise<Harness> {
    const token = await this.store.createToken({ ttlMs: 3_600_000, rules: needed });
    const harness = open({
      vault: byToken(this.store.address),
      servers: { a: refreshing(this.endpoint.url, "mcp/rt", more) },
      env: { STORE_TOKEN: token, SECRET: "s3cret-of-the-client" },
      clock: this.clock,
    });
    this.#gateways.push(harness);
    return harness;
  }

  async put(fields: Fields): Promise<void> {
    await this.store.putSecret("secret", "mcp/rt", fields);
  }

  async record(): Promise<Fields> {
    const headers = { "x-vault-token": this.store.rootToken };
    const answer = await fetch(`${this.store.address}/v1/${entry}`, { headers });
    return ((await answer.json()) as { data: { data: Fields } }).data.data;
  }

  /** What gateways wrote to the record, or tried to. */
  get writes(): Fields[] {
    return this.store.seen.filter(isWrite).map(({ body }) => body["data"] as Fields);
  }

  /** The refresh tokens that were sent. */
  get spent(): (string | null)[] {
    return this.endpoint.asked.map(({ form }) => form.get("refresh_token"));
  }

  /** Waits, letting time pass, until a gateway has read the record `count` times. */
  async reads(count: number): Promise<void> {
    const reads = (): number => this.store.seen.filter(({ method, path }) => method === "GET" && path === entry).length;
    await this.settle(this.until(() => reads() >= count));
  }

  /** Waits without letting time pass. */
  async until(condition: () => boolean | Promise<boolean>): Promise<void> {
    await until(condition, "the bench");
  }

  /** Lets time pass for short waits only: the deadlines of requests are longer. */
  async settle<T>(promise: Promise<T>, maxMs = 1_000): Promise<T> {
    let isSettled = false;
    const end = (): void => {
      isSettled = true;
    };
    promise.then(end, end);
    while (!isSettled) {
      await new Promise((resolve) => setTimeout(resolve, 2));
      const next = this.clock.nextInMs;
      if (!isSettled && next !== undefined && next <= maxMs) this.clock.advance(next);
    }
    return await promise;
  }

  async inject(gateway: Harness): Promise<string | undefined> {
    return (await this.settle(gateway.inject()))[1];
  }

  async failure(gateway: Harness): Promise<CredentialError> {
    return await this.settle(gateway.failure());
  }
}

export function isWrite({ method, path }: Seen): boolean {
  return method !== "GET" && path === entry;
}
