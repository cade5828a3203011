import { isUtf8 } from "node:buffer";
import { refuse, rpcCodes } from "./codes.ts";
import { isObject } from "./json.ts";
import { hasLoneSurrogate, type MemberTexts, type ScanFault, type ScannedObject, scanObject } from "./json-scan.ts";
import { JudgedKeys } from "./judged-keys.ts";
import type { AgentMessage, JsonObject, Refusal } from "./types.ts";

/**
 * Reads what an agent posted (DESIGN invariant 5). The bytes are read once and forwarded as they are, so whatever two
 * parsers may read differently is refused here: byte order marks, invalid UTF-8, keys that repeat, keys that equal a
 * judged one but for their case, half surrogate pairs, nesting that exhausts a stack.
 */

/** Deepest nesting of an agent's message; `{}` has 1. */
const maxDepth = 128;
/** The id is repeated in errors, stream heads and audit records, so it has a cap; SDK clients count from 0. */
const maxIdLength = 1024;
/** Longest object or list that is parsed because something in it is judged. */
const maxJudgedLength = 256 * 1024;

/** The message, or 400 with -32700 (no JSON) or -32600 (JSON, but no single unambiguous message). */
export function readMessage(body: Buffer): AgentMessage | Refusal {
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return parseError("byte order mark");
  if (!isUtf8(body)) return parseError("invalid utf-8");
  const text = body.toString("utf8");
  const first = firstSign(text);
  if (first === "[") return invalidRequest("batches are not supported");
  if (first !== "{") return isScalar(text) ? invalidRequest("no object") : parseError("no json");
  const scanned = scanObject(text, maxDepth);
  if (typeof scanned === "string") return scanRefusals[scanned];
  return classify(scanned);
}

/**
 * The same for ids that some server may take for one: `7` and `7.0`, 2^53 and 2^53 + 1, `1e400` and `1e401`, but not `7` and
 * `"7"`. Such a server would swap their answers (cases.md C12).
 */
export function idKeyOf(idText: string): string {
  const id: unknown = JSON.parse(idText);
  if (typeof id === "string") return JSON.stringify(id);
  return String(id);
}

function parseError(detail: string): Refusal {
  return refuse(400, rpcCodes.parseError, `Parse error: ${detail}`);
}

function invalidRequest(detail: string): Refusal {
  return refuse(400, rpcCodes.invalidRequest, `Invalid Request: ${detail}`);
}

const scanRefusals: Readonly<Record<ScanFault, Refusal>> = {
  syntax: parseError("no json"),
  depth: invalidRequest("nesting too deep"),
  repeat: invalidRequest("a key repeats"),
  surrogate: invalidRequest("a key holds half a surrogate pair"),
};

function firstSign(text: string): string | undefined {
  return text.startsWith("{") ? "{" : /[^ \t\r\n]/.exec(text)?.[0];
}

function isScalar(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function classify({ members, params: paramTexts }: ScannedObject): AgentMessage | Refusal {
  if (hasFoldedKey(members.keys(), messageKeys)) return invalidRequest(foldedKey);
  const version = members.get("jsonrpc");
  if (version !== '"2.0"' && scalarOf(version) !== "2.0") return invalidRequest('"jsonrpc" must be "2.0"');
  const idText = ownCopy(members.get("id"));
  if (idText !== undefined && idText.length > maxIdLength) return invalidRequest("id too long");
  if (members.has("result") || members.has("error")) return classifyResponse(members, idText);
  const method = scalarOf(members.get("method"));
  if (typeof method !== "string") return invalidRequest('"method" must be a string');
  if (hasLoneSurrogate(method)) return invalidRequest(loneSurrogate);
  if (members.has("params") && paramTexts === undefined) return invalidRequest('"params" must be an object');
  const params = paramTexts === undefined ? undefined : readParams(paramTexts);
  if (typeof params === "string") return invalidRequest(params);
  if (idText === undefined) return { kind: "notification", idText, method, params };
  return isId(idText) ? { kind: "request", idText, method, params } : invalidRequest(badId);
}

function classifyResponse(members: MemberTexts, idText: string | undefined): AgentMessage | Refusal {
  if (members.has("method")) return invalidRequest("both a request and a response");
  if (members.has("result") && members.has("error")) return invalidRequest("both a result and an error");
  const namesNone = idText === undefined || idText === "null";
  if (namesNone ? members.has("result") : !isId(idText)) return invalidRequest(badId);
  return { kind: "response", idText: namesNone ? undefined : idText, method: undefined, params: undefined };
}

const badId = '"id" must be a string or a number';
const foldedKey = "a key differs from a member of the protocol by case alone";
const loneSurrogate = "a judged string holds half a surrogate pair";

function isId(idText: string): boolean {
  const id = scalarOf(idText);
  return typeof id === "number" || (typeof id === "string" && !hasLoneSurrogate(id));
}

/** The value of a text that is known to be JSON; undefined for objects and arrays, which are not built. */
function scalarOf(text: string | undefined): unknown {
  return text === undefined || text.startsWith("{") || text.startsWith("[") ? undefined : JSON.parse(text);
}

/** What V8 copies anyway when it is cut out of a longer string. */
const shortLength = 12;

/** A part of a long string keeps the whole of it in memory, and the id outlives the body. */
function ownCopy(text: string | undefined): string | undefined {
  if (text === undefined || text.length <= shortLength || text.length > maxIdLength) return text;
  return Buffer.from(text).toString();
}

function hasFoldedKey(keys: Iterable<string>, judged: JudgedKeys): boolean {
  for (const key of keys) if (judged.bitOf(key) < 0) return true;
  return false;
}

const messageKeys = new JudgedKeys(["jsonrpc", "id", "method", "params", "result", "error"]);
/** Members of `params` of which only the name matters here. */
// biome-ignore format: a table
const namedParams = [
  "arguments", "argument", "context", "cursor", "inputResponses", "requestState", "requestId", "progressToken",
  "protocolVersion", "capabilities", "clientInfo", "level",
];
/** Members of `params` whose value is judged; they alone stand in `AgentMessage.params`. */
const judgedParams = ["name", "uri", "taskId", "task", "ref", "notifications", "_meta"] as const;
const paramKeys = new JudgedKeys([...judgedParams, ...namedParams]);
/** Members of members of `params`. */
const innerKeys = {
  _meta: new JudgedKeys([
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/subscriptionId",
    "io.modelcontextprotocol/related-task",
  ]),
  ref: new JudgedKeys(["type", "name", "uri"]),
  notifications: new JudgedKeys([
    "toolsListChanged",
    "promptsListChanged",
    "resourcesListChanged",
    "resourceSubscriptions",
  ]),
} as const;

/** The judged members of `params`, or what is wrong with them. */
function readParams(texts: MemberTexts): JsonObject | string {
  if (hasFoldedKey(texts.keys(), paramKeys)) return foldedKey;
  const params: Record<string, unknown> = {};
  for (const key of judgedParams) {
    const text = texts.get(key);
    if (text === undefined) continue;
    if (text.length > maxJudgedLength && !text.startsWith('"')) return "a judged member is too long";
    params[key] = JSON.parse(text);
  }
  for (const key of ["_meta", "ref", "notifications"] as const) {
    const inner = params[key];
    if (isObject(inner) && hasFoldedKey(Object.keys(inner), innerKeys[key])) return foldedKey;
  }
  return holdsLoneSurrogate(params) ? loneSurrogate : params;
}

/** In one of the strings that decide. */
function holdsLoneSurrogate({ name, uri, taskId, _meta: meta, ref, notifications }: JsonObject): boolean {
  if (isTorn(name) || isTorn(uri) || isTorn(taskId)) return true;
  if (isObject(meta) && isTorn(meta["io.modelcontextprotocol/protocolVersion"])) return true;
  if (isObject(ref) && (isTorn(ref["type"]) || isTorn(ref["name"]) || isTorn(ref["uri"]))) return true;
  const uris = isObject(notifications) ? notifications["resourceSubscriptions"] : undefined;
  return Array.isArray(uris) ? uris.some(isTorn) : isTorn(uris);
}

function isTorn(value: unknown): boolean {
  return typeof value === "string" && hasLoneSurrogate(value);
}
