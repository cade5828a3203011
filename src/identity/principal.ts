/** Who an agent is, once its key was found. The relay puts it into OPEN as it is. */
export interface KeyPrincipal {
  /** `key:<name>`. */
  readonly id: string;
  readonly kind: "key";
  readonly claims: Readonly<Record<string, never>>;
}

const noClaims: Readonly<Record<string, never>> = Object.freeze({});

/** The principal of the agent entry that is called `name` in relay.yaml. */
export function keyPrincipal(name: string): KeyPrincipal {
  return Object.freeze({ id: `key:${name}`, kind: "key", claims: noClaims });
}
