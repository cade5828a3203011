import { CredentialError, readSecret } from "../credentials/index.ts";
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
  const read = async (): Promise<Secret> => {
    try {
      return await readSecret(source, { env, logger });
    } catch (error) {
      if (error instanceof CredentialError) {
        const { code, message: reason, cure } = error;
        logger.error("admin.token could not be read", { code, reason, cure });
      }
      throw error;
    }
  };
  void read().catch(() => undefined);
  return read;
}
