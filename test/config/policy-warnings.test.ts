import { expect, it } from "vitest";
import { loadPolicy } from "../../src/config/index.ts";
import { compilePolicy, type PolicySource } from "../../src/policy/index.ts";
import { ticketsPolicy, writeConfig } from "./traps.ts";

function load(yaml: string): { config: PolicySource; warnings: string[] } {
  const loaded = loadPolicy(writeConfig("policy.yaml", yaml));
  if (loaded.kind === "bad") throw new Error(JSON.stringify(loaded.problems));
  return {
    config: loaded.config,
    warnings: loaded.warnings.map(({ at, message }) => `${at.line}:${at.column} ${message}`),
  };
}

it("C18 regular expressions are warned of", () => {
  const yaml = ticketsPolicy('    tools: ["^get_x", "get_y$", "/get_z/", ".*", "github.*", "a/b"]');
  const { warnings } = load(yaml);
  expect(warnings.map((warning) => warning.split(" ")[0])).toEqual(["4:13", "4:23", "4:33", "4:44"]);
});

it("rules and exceptions that can change nothing are warned of", () => {
  const yaml = ticketsPolicy(`    tools:
      - { name: "get_*", except: ["delete_*", "get_s*"] }
      - { name: "x_*", except: ["*"] }
      - search_issues
      - { name: "a*b", except: ["*c", "ab", "a*", b] }
      - { name: ok, except: ["ok?"] }
      - { name: "p*q", except: [pq] }
    deny: { tools: ["search_*", "a*c"] }`);
  const { warnings } = load(yaml);
  expect(warnings).toEqual([
    "5:35 `servers.tickets.tools[0].except[0]` takes nothing out of `get_*`",
    "6:9 `servers.tickets.tools[1]` admits nothing: its own `except` takes all of it out",
    "7:9 `servers.tickets.tools[2]` admits nothing: `deny` on line 11 takes all of it",
    "8:9 `servers.tickets.tools[3]` admits nothing: its own `except` takes all of it out",
    "8:33 `servers.tickets.tools[3].except[0]` takes nothing out of `a*b`",
    "8:51 `servers.tickets.tools[3].except[3]` takes nothing out of `a*b`",
    "9:30 `servers.tickets.tools[4].except[0]`: only * is special, other signs stand for themselves",
    "9:30 `servers.tickets.tools[4].except[0]` takes nothing out of `ok`",
  ]);
});

it("resources that no request can name are warned of", () => {
  const bad = [
    "t://open/../x",
    "T://x",
    "http://u@h/*",
    "t://a%2fb/**",
    "t://Host/x",
    "t://x/.",
    "t://x/%61*",
    "t://*.MD",
  ];
  const good = ["t://open/..x", "t://x/.*", "t://x/a%20b", "t://*/A", "t://x/.../y", "**", "t://x/**/.well-known"];
  good.push("t://**.MD", "t://**README.md", "t://**@2x.png", "t://a**B/**/C");
  const lines = [...bad, ...good].map((pattern) => `      - "${pattern}"`).join("\n");
  const yaml = ticketsPolicy(`    resources:\n${lines}\n    deny: { resources: ["t://open/../y"] }`);
  const { config, warnings } = load(yaml);
  expect(warnings.map((warning) => warning.split(":")[0])).toEqual(bad.map((_, i) => String(i + 5)));
  const policy = compilePolicy(config);
  for (const uri of bad) expect(policy.decide("tickets", { kind: "resource", uris: [uri] }).kind).toBe("deny");
});
