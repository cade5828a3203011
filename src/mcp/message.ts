import { isUtf8 } from "node:buffer";
import { refuse, rpcCodes } from "./codes.ts";
import { countKeys, hasLoneSurrogate, hasLoneSurrogateKey, isObject, outlineJson } from "./json.ts";
import type { AgentMessage, JsonObject, Refusal } from "./types.ts";

/**
 * Reads what an agent posted (DESIGN invariant 5). The bytes are parsed once and forwarded as they are, so whatever two
 * parsers may read differently is refused here: byte order marks, invalid UTF-8, keys that repeat, keys that equal a
 * judged one but for their case, half surrogate pairs, nesting that exhausts a stack.
 */

/** Deepest nesting of an agent's message; `{}` has 1. */
const maxDepth = 128;
/** The id is repeated in errors, stream heads and audit records, so it has a cap; SDK clients count from 0. */
const maxIdLength = 1024;

/** The message, or 400 with -32700 (no JSON) or -32600 (JSON, but no single unambiguous message). */
export function readMessage(body: Buffer): AgentMessage | Refusal {
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return parseError("byte order mark");
  if (!isUtf8(body)) return parseError("invalid utf-8");
  const text = body.toString("utf8");
  const outline = outlineJson(text, maxDepth);
  if (outline.depth > maxDepth) return invalidRequest("nesting too deep");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return parseError("no json");
  }
  if (Array.isArray(value)) return invalidRequest("batches are not supported");
  if (!isObject(value)) return invalidRequest("no object");
  if (countKeys(value) !== outline.keyCount) return invalidRequest("a key repeats");
  const fault = findFoldedKey(value) ?? (escapedSurrogate.test(text) ? findLoneSurrogate(value) : undefined);
  return fault === undefined ? classify(value, outline.idText) : invalidRequest(fault);
}

/** Tells ids apart as a server written in any language does: `7` and `7.0` are one, `7` and `"7"` are two. */
export function idKeyOf(idText: string): string {
  const id: unknown = JSON.parse(idText);
  if (typeof id === "string") return JSON.stringify(id);
  return Number.isSafeInteger(id) ? String(id) : idText;
}

function parseError(detail: string): Refusal {
  return refuse(400, rpcCodes.parseError, `Parse error: ${detail}`);
}

function invalidRequest(detail: string): Refusal {
  return refuse(400, rpcCodes.invalidRequest, `Invalid Request: ${detail}`);
}

function classify(value: JsonObject, idText: string | undefined): AgentMessage | Refusal {
  if (value["jsonrpc"] !== "2.0") return invalidRequest('"jsonrpc" must be "2.0"');
  const hasId = "id" in value;
  if (hasId && idText !== undefined && idText.length > maxIdLength) return invalidRequest("id too long");
  if ("result" in value || "error" in value) return classifyResponse(value, idText);
  const { method, params } = value;
  if (typeof method !== "string") return invalidRequest('"method" must be a string');
  if (params !== undefined && !isObject(params)) return invalidRequest('"params" must be an object');
  if (!hasId) return { kind: "notification", idText: undefined, method, params };
  if (!isId(value["id"])) return invalidRequest('"id" must be a string or a number');
  return { kind: "request", idText, method, params };
}

function classifyResponse(value: JsonObject, idText: string | undefined): AgentMessage | Refusal {
  if ("method" in value) return invalidRequest("both a request and a response");
  if ("result" in value && "error" in value) return invalidRequest("both a result and an error");
  const id = value["id"];
  const namesNone = id === undefined || id === null;
  if (namesNone ? "result" in value : !isId(id)) return invalidRequest('"id" must be a string or a number');
  return { kind: "response", idText: namesNone ? undefined : idText, method: undefined, params: undefined };
}

function isId(id: unknown): boolean {
  return typeof id === "string" || typeof id === "number";
}

interface JudgedKeys {
  readonly exact: ReadonlySet<string>;
  readonly folded: RegExp;
}

/** JavaScript's `iu` is Unicode simple case folding: it also finds the Kelvin sign for k and the long s for s. */
function judgedKeys(...keys: readonly string[]): JudgedKeys {
  const escaped = keys.map((key) => key.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  return { exact: new Set(keys), folded: new RegExp(`^(?:${escaped.join("|")})$`, "iu") };
}

const messageKeys = judgedKeys("jsonrpc", "id", "method", "params", "result", "error");
// biome-ignore format: a table
const paramKeys = judgedKeys(
  "name", "uri", "arguments", "_meta", "ref", "argument", "context", "cursor", "task", "taskId", "inputResponses",
  "requestState", "notifications", "requestId", "progressToken", "protocolVersion", "capabilities", "clientInfo", "level",
);
const metaKeys = judgedKeys(
  "progressToken",
  "io.modelcontextprotocol/protocolVersion",
  "io.modelcontextprotocol/clientCapabilities",
  "io.modelcontextprotocol/clientInfo",
  "io.modelcontextprotocol/logLevel",
  "io.modelcontextprotocol/subscriptionId",
  "io.modelcontextprotocol/related-task",
);
const refKeys = judgedKeys("type", "name", "uri");
const filterKeys = judgedKeys(
  "toolsListChanged",
  "promptsListChanged",
  "resourcesListChanged",
  "resourceSubscriptions",
);

function findFoldedKey(message: JsonObject): string | undefined {
  const { params } = message;
  if (isFolded(message, messageKeys)) return foldedKey;
  if (!isObject(params)) return undefined;
  const found =
    isFolded(params, paramKeys) ||
    isFolded(params["_meta"], metaKeys) ||
    isFolded(params["ref"], refKeys) ||
    isFolded(params["notifications"], filterKeys);
  return found ? foldedKey : undefined;
}

const foldedKey = "a key differs from a member of the protocol by case alone";

function isFolded(value: unknown, judged: JudgedKeys): boolean {
  if (!isObject(value)) return false;
  for (const key of Object.keys(value)) if (!judged.exact.has(key) && judged.folded.test(key)) return true;
  return false;
}

/** Valid UTF-8 holds no half of a pair, so only an escape can make one. */
const escapedSurrogate = /\\u[dD][89a-fA-F]/;

function findLoneSurrogate(message: JsonObject): string | undefined {
  if (hasLoneSurrogateKey(message)) return "a key holds half a surrogate pair";
  return judgedStrings(message).some(hasLoneSurrogate) ? "a judged string holds half a surrogate pair" : undefined;
}

function judgedStrings(message: JsonObject): string[] {
  const values: unknown[] = [message["id"], message["method"]];
  const params = message["params"];
  if (isObject(params)) {
    values.push(params["name"], params["uri"], params["taskId"], params["requestId"]);
    const { _meta: meta, ref, notifications } = params;
    if (isObject(meta)) values.push(meta["io.modelcontextprotocol/protocolVersion"], meta["progressToken"]);
    if (isObject(ref)) values.push(ref["type"], ref["name"], ref["uri"]);
    if (isObject(notifications)) values.push(notifications["resourceSubscriptions"]);
  }
  return values.flat().filter((value) => typeof value === "string");
}
