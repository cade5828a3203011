export { KeyTable } from "./key-table.ts";
export { type KeyPrincipal, keyPrincipal } from "./principal.ts";
export { createToken, hashToken, parseToken, readBearer, type TokenKind } from "./token.ts";
