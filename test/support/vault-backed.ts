import { randomBytes } from "node:crypto";
import { type Bao, findBao, startBao } from "./bao.ts";
import { noteSecret } from "./known-secrets.ts";

/** What a test needs of a real vault: the server, and how a gateway logs in there. */
export interface VaultBacking {
  readonly bao: Bao;
  readonly roleId: string;
  readonly secretId: string;
  /** The `vault` section of gateway.yaml; `secretFiles` must hold `secret-id`. */
  readonly yaml: Record<string, unknown>;
  /** Every secret that must never be printed, by what it is. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** The binary, or undefined after a loud word. In CI a missing binary fails: a skipped proof is none. */
export function requireBao(): string | undefined {
  const binary = findBao();
  if (binary !== undefined) return binary;
  if (process.env["CI"] === "true")
    throw new Error("no bao binary: run scripts/install-bao.sh before the system tests");
  console.warn(
    "\n  SKIPPED: every test against a real vault, because there is no bao binary. Run scripts/install-bao.sh\n",
  );
  return undefined;
}

/** A secret that contains characters which every encoding changes. */
export function mintSecret(kind: string): string {
  return noteSecret(kind, `${kind}-${randomBytes(24).toString("base64url")}~x`);
}

/** A running OpenBao with `paths` readable for one AppRole. */
export async function startVaultBacking(binary: string, paths: readonly string[]): Promise<VaultBacking> {
  const bao = await startBao(binary);
  const rules = paths.map((path) => `path "${path}" { capabilities = ["read"] }`).join("\n");
  const { roleId, secretId } = await bao.enableApprole(rules);
  return {
    bao,
    roleId,
    secretId,
    yaml: { address: bao.address, auth: { method: "approle", roleId, secretId: { file: "./secret-id" } } },
    secrets: {
      "vault root token": noteSecret("vault root token", bao.rootToken),
      "approle secret id": noteSecret("approle secret id", secretId),
    },
  };
}
