export { type JwksSource, KeyRings } from "./key-rings.ts";
export type { KeyRing } from "./key-set.ts";
export { KeyTable } from "./key-table.ts";
export { type KeyPrincipal, keyPrincipal } from "./principal.ts";
export { caCure } from "./remote-keys.ts";
export { createToken, hashToken, parseToken, readBearer, type TokenKind } from "./token.ts";
export type { OAuthPrincipal, VerifiedToken } from "./token-claims.ts";
export {
  createTokenVerifier,
  looksLikeJwt,
  type TokenFault,
  type TokenVerdict,
  type TokenVerifier,
  type TokenVerifierDeps,
  type TokenVerifierOptions,
} from "./token-verifier.ts";
export { tryKeys } from "./try-keys.ts";
