import { CredentialError, LocalReader } from "../credentials/index.ts";
import type { Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { CommandIo } from "./io.ts";

/** Where `admin.token` is read from; config admits no other. */
export type AdminTokenSource = { readonly file: string } | { readonly env: string };

/**
 * A reader of `admin.token` for the admin port. It is tried at once: a variable leaves the environment before anybody can ask,
 * and a file that is not there is said at the start. Neither keeps the part from running.
 */
export function openAdminToken(
  source: AdminTokenSource | undefined,
  env: CommandIo["env"],
  logger: Logger,
): (() => Promise<Secret>) | undefined {
  if (source === undefined) return undefined;
  // One for all requests: whoever reaches the port may ask as often as they like, and must not fill the log by it.
  const reader = new LocalReader({ env, logger });
  let isTold = false;
  const read = async (): Promise<Secret> => {
    try {
      const token = await reader.read(source);
      isTold = false;
      return token;
    } catch (error) {
      if (error instanceof CredentialError && !isTold) {
        isTold = true;
        const { code, message: reason, cure } = error;
        logger.error("admin.token could not be read", { code, reason, cure });
      }
      throw error;
    }
  };
  void read().catch(() => undefined);
  return read;
}
