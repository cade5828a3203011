import { basename, dirname } from "node:path";
import { describe, expect, it } from "vitest";
import { formatProblem, type Loaded, loadGatewayConfig, loadPolicy, loadRelayConfig } from "../../src/config/index.ts";
import { caTraps, relayCaTraps } from "./ca-traps.ts";
import { gatewayTraps } from "./gateway-traps.ts";
import { issuedTraps } from "./issued-traps.ts";
import { policyTraps } from "./policy-traps.ts";
import { relayTraps } from "./relay-traps.ts";
import { slipTraps } from "./slip-traps.ts";
import { type Trap, writeConfig } from "./traps.ts";

const documents: readonly [string, (file: string) => Loaded<unknown>, readonly Trap[]][] = [
  ["policy.yaml", loadPolicy, policyTraps],
  ["gateway.yaml", loadGatewayConfig, [...gatewayTraps, ...issuedTraps, ...slipTraps, ...caTraps]],
  ["relay.yaml", loadRelayConfig, [...relayTraps, ...relayCaTraps]],
];

for (const [name, load, traps] of documents) {
  describe(`traps of ${name}`, () => {
    for (const trap of traps) {
      it(trap.title, () => {
        const file = writeConfig(name, trap.yaml);
        const loaded = load(file);
        if (loaded.kind === "ok") throw new Error("this was accepted");
        const said = loaded.problems.map(({ at, message, cure }) => {
          expect(basename(at.file)).toBe(name);
          return [`${at.line}:${at.column} ${message.replaceAll(`${dirname(file)}/`, "")}`, cure];
        });
        expect(said).toEqual(trap.says);
        for (const problem of loaded.problems) expect(formatProblem(problem)).not.toContain("supersecret");
      });
    }
  });
}

it("there are traps enough, and secrets among them", () => {
  const all = documents.flatMap(([, , traps]) => traps);
  expect(all.length).toBeGreaterThan(130);
  expect(all.filter(({ yaml }) => yaml.includes("supersecret")).length).toBeGreaterThan(9);
});
