import { type Logger, silentLogger } from "../telemetry/index.ts";
import { type JwksSource, KeyRings, type KeyRingsDeps } from "./key-rings.ts";

/** Whether the keys of `issuer` can be had now, and if not why: for a diagnosis. Never rejects. */
export async function tryKeys(
  issuer: string,
  { jwks, ca }: { readonly jwks?: JwksSource | undefined; readonly ca?: string | undefined },
  deps: Omit<KeyRingsDeps, "logger">,
): Promise<{ readonly isThere: boolean; readonly reason: string | undefined }> {
  let reason: string | undefined;
  const note: Logger["warn"] = (_event, fields) => {
    reason = fields?.reason;
  };
  const rings = new KeyRings({ ...deps, logger: { ...silentLogger, warn: note, error: note } });
  try {
    const keys = await rings.ring(issuer, jwks, ca).current();
    return { isThere: keys !== undefined, reason };
  } finally {
    await rings.close();
  }
}
