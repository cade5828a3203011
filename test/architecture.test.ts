import { readdirSync, readFileSync, statSync } from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

/** The rooms and what each may import: ARCHITECTURE.md, "Rooms". */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  lib: [],
  telemetry: ["lib"],
  config: ["lib"],
  mcp: ["lib"],
  tunnel: ["lib", "telemetry"],
  identity: ["lib", "telemetry"],
  policy: ["lib", "mcp"],
  credentials: ["lib", "telemetry"],
  upstream: ["lib", "telemetry", "mcp"],
  gateway: ["lib", "telemetry", "mcp", "tunnel", "identity", "policy", "credentials", "upstream"],
  relay: ["lib", "telemetry", "mcp", "tunnel", "identity"],
  admin: ["lib", "telemetry"],
  cli: [
    "lib",
    "telemetry",
    "config",
    "mcp",
    "tunnel",
    "identity",
    "policy",
    "credentials",
    "upstream",
    "gateway",
    "relay",
    "admin",
  ],
};

/** Packages and the only places that may name them (a room, or a path below it). */
const packageOwners: Readonly<Record<string, readonly string[]>> = {
  ws: ["tunnel"],
  yaml: ["config"],
  zod: ["config", "cli/demo"],
  pino: ["telemetry"],
  "prom-client": ["telemetry"],
  undici: ["upstream", "credentials", "identity"],
  jose: ["identity", "credentials"],
  oauth4webapi: ["credentials"],
  "node-vault": ["credentials/vault-transport.ts"],
  "@modelcontextprotocol/server": ["cli/demo"],
  "@modelcontextprotocol/node": ["cli/demo"],
  "@modelcontextprotocol/client": ["cli/demo"],
  "node:http": ["relay", "admin", "cli/demo", "tunnel"],
  "node:https": ["tunnel"],
  "node:child_process": [],
};

/** What a file outside the named places must not say. */
const wordOwners: readonly { readonly word: RegExp; readonly places: readonly string[] }[] = [
  { word: /\bprocess\.(?:env|exit|exitCode|on|once|argv)\b/, places: ["cli"] },
  { word: /\b(?:Date\.now|performance\.now|setTimeout|setInterval)\(/, places: ["lib/clock.ts", "cli"] },
  { word: /\bMath\.random\b/, places: ["cli"] },
  { word: /\bcreateServer\(/, places: ["relay", "admin", "cli/demo"] },
];

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..", "src");

interface Edge {
  readonly file: string;
  readonly room: string;
  readonly target: string;
  readonly typeOnly: boolean;
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) return filesBelow(path);
    return path.endsWith(".ts") ? [path] : [];
  });
}

function withoutComments(source: string): string {
  return source.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|[^:"'`])\/\/.*$/gm, "$1");
}

const importPattern =
  /(?:^|\n)\s*(?:import|export)(\s+type)?\b[^;"'`]*?\bfrom\s*(["'])([^"']+)\2|(?:^|\n)\s*import\s*(["'])([^"']+)\4|\bimport\(\s*(["'`])([^"'`]+)\6|\brequire\(\s*(["'])([^"']+)\8/g;

function edgesOf(file: string, source: string): Edge[] {
  const name = relative(root, file).split(sep).join("/");
  const room = name.split("/")[0] ?? "";
  return [...withoutComments(source).matchAll(importPattern)].map((match) => ({
    file: name,
    room,
    target: match[3] ?? match[5] ?? match[7] ?? match[9] ?? "",
    typeOnly: match[1] !== undefined,
  }));
}

/** What is wrong with one import, or undefined. */
function complaint(edge: Edge): string | undefined {
  if (edge.target.startsWith(".")) return complaintOfLocal(edge);
  const isNode = isBuiltin(edge.target);
  if (isNode && !edge.target.startsWith("node:")) return `${edge.file}: write node:${edge.target}`;
  const name = isNode
    ? edge.target
    : edge.target
        .split("/")
        .slice(0, edge.target.startsWith("@") ? 2 : 1)
        .join("/");
  const owners = packageOwners[name];
  if (owners === undefined) return isNode ? undefined : `${edge.file}: no room owns the package ${name}`;
  return isWithin(edge.file, owners) ? undefined : `${edge.file}: ${name} belongs to ${owners.join(", ") || "nobody"}`;
}

function isWithin(file: string, places: readonly string[]): boolean {
  return places.some((place) => file === place || file.startsWith(`${place}/`));
}

function complaintOfLocal(edge: Edge): string | undefined {
  const target = relative(root, resolve(root, dirname(edge.file), edge.target))
    .split(sep)
    .join("/");
  const room = target.split("/")[0] ?? "";
  if (room === edge.room) return undefined;
  if (!(mayImport[edge.room] ?? []).includes(room)) return `${edge.file}: ${edge.room} may not import ${room}`;
  if (target === `${room}/index.ts`) return undefined;
  if (target === "mcp/types.ts" && edge.typeOnly) return undefined;
  return `${edge.file}: enter ${room} by its index.ts, not ${target}`;
}

describe("architecture", () => {
  const files = filesBelow(root);
  const edges = files.flatMap((file) => edgesOf(file, readFileSync(file, "utf8")));

  it("sees the tree that it judges", () => {
    expect(files.length).toBeGreaterThan(20);
    expect(edges.length).toBeGreaterThan(50);
    const rooms = readdirSync(root).filter((name) => statSync(join(root, name)).isDirectory());
    expect(rooms.filter((room) => !(room in mayImport))).toEqual([]);
  });

  it("lets imports run down only, by the door, and packages stay with their owner", () => {
    expect(edges.map(complaint).filter((text) => text !== undefined)).toEqual([]);
  });

  it("keeps process, clocks, randomness and listeners where they belong", () => {
    const found = files.flatMap((file) => {
      const name = relative(root, file).split(sep).join("/");
      const source = withoutComments(readFileSync(file, "utf8"));
      return wordOwners
        .filter(({ word, places }) => word.test(source) && !isWithin(name, places))
        .map(({ word }) => `${name}: ${word.source}`);
    });
    expect(found).toEqual([]);
  });

  it("has no star export", () => {
    const found = files.filter((file) => /export\s*\*/.test(withoutComments(readFileSync(file, "utf8"))));
    expect(found).toEqual([]);
  });

  it.each([
    [`import { a } from "../gateway/index.ts";`, "relay/x.ts", "may not import gateway"],
    [`import type { a } from "../gateway/index.ts";`, "relay/x.ts", "may not import gateway"],
    [`import { a } from "../tunnel/session.ts";`, "relay/x.ts", "enter tunnel by its index.ts"],
    [`import { a } from "../mcp/types.ts";`, "relay/x.ts", "enter mcp by its index.ts"],
    [`import {\n  a,\n  b,\n} from '../config/index.ts';`, "relay/x.ts", "may not import config"],
    [`export { a } from "../config/index.ts";`, "relay/x.ts", "may not import config"],
    [`import "../cli/main.ts";`, "lib/x.ts", "may not import cli"],
    [`const a = await import("../cli/main.ts");`, "lib/x.ts", "may not import cli"],
    [`import { WebSocket } from "ws";`, "relay/x.ts", "ws belongs to tunnel"],
    [`import pretty from "pino/file";`, "relay/x.ts", "pino belongs to telemetry"],
    [`import fs from "fs";`, "lib/x.ts", "write node:fs"],
    [`import { spawn } from "node:child_process";`, "gateway/x.ts", "belongs to nobody"],
    [`import leftPad from "left-pad";`, "lib/x.ts", "no room owns"],
  ])("complains of a planted fault: %s", (source, file, words) => {
    const found = edgesOf(join(root, file), source).map(complaint);
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(words);
  });

  it.each([
    [`import type { Era } from "../mcp/types.ts";`, "relay/x.ts"],
    [`import { a } from "../lib/index.ts";`, "relay/x.ts"],
    [`// import { a } from "../gateway/index.ts";`, "relay/x.ts"],
    [`import { b } from "./b.ts";`, "relay/x.ts"],
  ])("lets a lawful line be: %s", (source, file) => {
    expect(edgesOf(join(root, file), source).map(complaint).filter(Boolean)).toEqual([]);
  });
});
