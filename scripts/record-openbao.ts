/** Writes the answers of OpenBao that tests hold the fake against: `npx tsx scripts/record-openbao.ts`. */
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { findBao } from "../test/support/bao.ts";
import { collectBaoAnswers } from "../test/support/bao-answers.ts";

const folder = join(import.meta.dirname, "../test/fixtures/openbao");

const binary = findBao();
if (binary === undefined) throw new Error("no bao binary: run scripts/install-bao.sh");
const { version, answers } = await collectBaoAnswers(binary);
await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
for (const [name, answer] of Object.entries({ version: { version }, ...answers })) {
  await writeFile(join(folder, `${name}.json`), `${JSON.stringify(answer, null, 2)}\n`);
}
console.log(`${Object.keys(answers).length} answers of OpenBao ${version} are in test/fixtures/openbao`);
