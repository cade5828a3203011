import type { Clock, Secret } from "../lib/index.ts";
import type { TokenManager } from "./vault-auth.ts";
import { VaultFailure } from "./vault-failure.ts";
import type { VaultAnswer, VaultTransport } from "./vault-transport.ts";

export interface AskDeps {
  readonly transport: VaultTransport;
  readonly tokens: TokenManager;
  readonly clock: Clock;
}

export interface Asked {
  readonly answer: VaultAnswer;
  /** The token that it was asked with: what the store leases dies with it. */
  readonly token: Secret;
}

const inconsistentRetryMs = 200;

/**
 * Asks the store with the token of the moment. A refusal is tried again once, if the token was to blame; so is a node that
 * lags behind, or a connection gone stale. Rejects as the transport and the token manager do.
 */
export async function askStore(
  { transport, tokens, clock }: AskDeps,
  send: (transport: VaultTransport, token: Secret) => Promise<VaultAnswer>,
): Promise<Asked> {
  const token = await tokens.current();
  try {
    return { answer: await send(transport, token), token };
  } catch (error) {
    if (!(error instanceof VaultFailure)) throw error;
    if (error.status === 403 && (await tokens.judgeDenial(token)) === "denied") throw error;
    if (error.status === 412) await new Promise<void>((resolve) => clock.after(inconsistentRetryMs, resolve));
    if (error.status !== 403 && error.status !== 412 && !isLostConnection(error)) throw error;
    const next = await tokens.current();
    return { answer: await send(transport, next), token: next };
  }
}

function isLostConnection(error: VaultFailure): boolean {
  return error.kind === "unreachable" && !error.isUnsent && /^(?:ECONNRESET|EPIPE|UND_ERR_SOCKET)$/.test(error.message);
}
