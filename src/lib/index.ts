export {
  addressRefused,
  guardConnect,
  guardedLookup,
  hostRefusal,
  type Reach,
  type ResolveAll,
  reachOf,
} from "./address-guard.ts";
export { rangeOf } from "./addresses.ts";
export { Backoff } from "./backoff.ts";
export { type Clock, systemClock, type Timer } from "./clock.ts";
export { ByName, headerValue, headerValues, type RawHeaders } from "./headers.ts";
export { concealSecrets } from "./live-secrets.ts";
export { formatPosition, type Position } from "./position.ts";
export { RecentMap, type RecentMapOptions } from "./recent-map.ts";
export { Secret } from "./secret.ts";
export { formsOf, logEndsOf, logFormsOf } from "./secret-forms.ts";
export { connectTrusting, isDistrust, readCertificates } from "./trust.ts";
export { isAmbiguousUri, isUnsafeName } from "./uri.ts";
