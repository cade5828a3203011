import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import { AnswerCollector, differences, type StoreAnswer, type StoreAnswers } from "../support/store-answers.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { storeSuite } from "./store-suite.ts";

storeSuite("a store as the fake plays it", () => VaultFake.start());

const folder = "test/fixtures/openbao";
const recorded = (name: string): StoreAnswer =>
  JSON.parse(readFileSync(`${folder}/${name}.json`, "utf8")) as StoreAnswer;

describe("the fake says what OpenBao said", () => {
  /** What it does not play; tests that need such an answer script it. */
  const unplayed = ["version", "rate-limited", "rate-limited-told"];

  async function collect(): Promise<StoreAnswers> {
    const fake = await VaultFake.start();
    onTestFinished(() => fake.stop());
    const collector = new AnswerCollector(fake);
    await collector.logins();
    await collector.maximum();
    await collector.reads();
    await collector.wrapping(async () =>
      fake.wrap("auth/approle/role/wrapped/secret-id", { secret_id: "value", secret_id_ttl: 0 }),
    );
    await collector.writes(async () => undefined);
    await collector.sealed();
    return collector.answers;
  }

  it("C27 C28 in every answer that was recorded", async () => {
    const answers = await collect();
    const found = Object.entries(answers).map(([name, answer]) => [name, differences(answer, recorded(name))]);
    expect(found.filter(([, different]) => different?.length !== 0)).toEqual([]);
    const names = readdirSync(folder).map((file) => file.replace(".json", ""));
    expect([...Object.keys(answers), ...unplayed].sort()).toEqual(names.sort());
  });

  it("and a difference is told by its place", () => {
    const real = recorded("read");
    expect(differences({ status: 200, body: { data: { data: { token: 5 }, more: 1 } } }, real)).toEqual([
      '/body/data/data/token: 5 instead of "value"',
      "/body/data/more: 1 instead of undefined",
    ]);
  });
});
