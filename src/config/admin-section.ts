import { type Listen, listenAddress, section } from "./fields.ts";
import { type LocalSource, localSource } from "./source.ts";

/** The port for probes, metrics and status. */
export interface AdminSettings {
  readonly listen: Listen;
  /** What opens `/status`; undefined: nothing does. */
  readonly token: LocalSource | undefined;
}

/** `port`: the default one, on loopback. The token is local, so that status can be asked for while Vault is away. */
export function adminSection(base: string, port: number) {
  const token = localSource(base, "status is wanted most while Vault is away");
  return section({ listen: listenAddress().optional(), token: token.optional() })
    .optional()
    .transform(
      (file): AdminSettings => ({
        listen: file?.listen ?? { host: "127.0.0.1", port },
        token: file?.token,
      }),
    );
}
