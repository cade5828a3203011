export { Backoff } from "./backoff.ts";
export { type Clock, systemClock, type Timer } from "./clock.ts";
export { headerValue, headerValues, type RawHeaders } from "./headers.ts";
export { formatPosition, type Position } from "./position.ts";
export { RecentMap, type RecentMapOptions } from "./recent-map.ts";
export { Secret } from "./secret.ts";
