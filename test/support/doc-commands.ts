import { execFile } from "node:child_process";
import { chmod, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Bao } from "./bao.ts";

const run = promisify(execFile);

/** The shell blocks of a document below the heading `title`. */
export async function readShellBlocks(file: string, title: string): Promise<string[]> {
  const text = await readFile(file, "utf8");
  const [, part = ""] = text.split(`\n## ${title}\n`);
  const [section = ""] = part.split("\n## ");
  const blocks = [...section.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block = ""]) => block);
  if (blocks.length === 0) throw new Error(`${file} has no commands below ${title}`);
  return blocks;
}

/** The policy stanzas that a document shows by themselves. */
export async function readHclBlocks(file: string): Promise<string[]> {
  const text = await readFile(file, "utf8");
  return [...text.matchAll(/```hcl\n([\s\S]*?)```/g)].map(([, block = ""]) => block);
}

/** A directory in which the commands of our documents run against `bao`, as root. */
export class CommandRoom {
  readonly dir: string;
  readonly #env: Record<string, string>;

  private constructor(dir: string, env: Record<string, string>) {
    this.dir = dir;
    this.#env = env;
  }

  static async open(binary: string, bao: Bao): Promise<CommandRoom> {
    const dir = await mkdtemp(join(tmpdir(), "commands-"));
    const shim = join(dir, "vault");
    await writeFile(shim, `#!/bin/sh\nexec '${binary}' "$@"\n`);
    await chmod(shim, 0o755);
    const path = `${dir}:${process.env["PATH"] ?? ""}`;
    return new CommandRoom(dir, { HOME: dir, PATH: path, BAO_ADDR: bao.address, BAO_TOKEN: bao.rootToken });
  }

  async run(script: string): Promise<void> {
    await run("sh", ["-euc", script], { cwd: this.dir, env: this.#env });
  }

  async write(name: string, text: string): Promise<void> {
    await writeFile(join(this.dir, name), text);
  }

  read(name: string): Promise<string> {
    return readFile(join(this.dir, name), "utf8");
  }
}
