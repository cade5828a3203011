import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AgentsOptions } from "../../src/gateway/index.ts";
import { createToken } from "../../src/identity/index.ts";
import { TestIssuer } from "../support/issuer.ts";

/** Of the tokens that `TestIssuer` signs unless told otherwise. */
export const audience = "https://relay.example.com/acme/tickets/mcp";

/** Agents whom a gateway verifies for itself: `claude` by a key, and everybody with a token of `issuer`. */
export class EdgeAgents {
  readonly claude = createToken("agent");
  readonly issuer = new TestIssuer();
  /** For files of the test's own, too. */
  readonly folder = mkdtempSync(join(tmpdir(), "postern-edge-"));
  readonly jwks = { file: join(this.folder, "keys.json") };

  async start(): Promise<void> {
    await this.issuer.start();
    writeFileSync(this.jwks.file, JSON.stringify(this.issuer.jwks));
  }

  async stop(): Promise<void> {
    await this.issuer.close();
    rmSync(this.folder, { recursive: true });
  }

  get options(): AgentsOptions {
    return {
      keys: [{ name: "claude", sha256: [this.claude.sha256] }],
      issuers: [{ issuer: this.issuer.url, audience, jwks: this.jwks }],
    };
  }
}
