import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { collectBaoAnswers } from "../support/bao-answers.ts";
import { requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const folder = "test/fixtures/openbao";

it.skipIf(binary === undefined)("OpenBao still says what was recorded of it: scripts/record-openbao.ts", async () => {
  const stored = readdirSync(folder).map((file) => [
    file.replace(".json", ""),
    JSON.parse(readFileSync(`${folder}/${file}`, "utf8")) as unknown,
  ]);
  expect(stored.length).toBeGreaterThan(30);
  const { version, answers } = await collectBaoAnswers(binary ?? "");
  expect({ version: { version }, ...answers }).toEqual(Object.fromEntries(stored));
});
