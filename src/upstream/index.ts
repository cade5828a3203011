export type { UpstreamCall, UpstreamSink } from "./call.ts";
export type { UpstreamError, UpstreamErrorCode } from "./errors.ts";
export type { TlsIdentity } from "./pools.ts";
export { createUpstream, type Upstream, type UpstreamOptions, type UpstreamRequest } from "./upstream.ts";
