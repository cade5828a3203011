import { execFileSync } from "node:child_process";
import {
  closeSync,
  constants,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { LineWriter } from "../../src/gateway/line-writer.ts";
import { systemClock } from "../../src/lib/index.ts";
import { until } from "../support/until.ts";

const folder = mkdtempSync(join(tmpdir(), "postern-lines-"));
let count = 0;
afterAll(() => rmSync(folder, { recursive: true }));

function newFile(): string {
  count += 1;
  return join(folder, `${count}.jsonl`);
}

function open(
  target: { file: string } | { fd: number },
  more: { maxQueueBytes?: number; writeTimeoutMs?: number } = {},
) {
  const problems: string[] = [];
  const writer = new LineWriter({
    target,
    clock: systemClock,
    maxQueueBytes: 1024 * 1024,
    writeTimeoutMs: 5_000,
    onProblem: (code) => problems.push(code),
    ...more,
  });
  return { writer, problems };
}

/** A pipe whose reading end the test holds; nothing is read until `start`. */
class Pipe {
  readonly writeFd: number;
  readonly #reader: Socket;
  readonly #chunks: Buffer[] = [];

  constructor(isBlocking: boolean) {
    count += 1;
    const path = join(folder, `pipe-${count}`);
    execFileSync("mkfifo", [path]);
    const readFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    this.writeFd = openSync(path, isBlocking ? "w" : constants.O_WRONLY | constants.O_NONBLOCK);
    this.#reader = new Socket({ fd: readFd, readable: true, writable: false });
    this.#reader.pause();
  }

  get text(): string {
    return Buffer.concat(this.#chunks).toString();
  }

  start(): void {
    this.#reader.on("data", (chunk) => this.#chunks.push(chunk));
    this.#reader.resume();
  }

  close(): void {
    this.#reader.destroy();
    closeSync(this.writeFd);
  }
}

describe("line writer", () => {
  it("writes the lines of one tick together, and says so afterwards only", async () => {
    const file = newFile();
    const { writer } = open({ file });
    const seen: string[] = [];
    for (const line of ["a\n", "b\n", "c\n"]) {
      writer.append(line, {
        onWritten: (isWritten) => seen.push(`${line.trim()} ${isWritten} ${readFileSync(file, "utf8")}`),
      });
    }
    expect(seen).toEqual([]);
    await until(() => seen.length === 3, "written");
    expect(seen).toEqual(["a", "b", "c"].map((name) => `${name} true a\nb\nc\n`));
    await writer.close();
  });

  it("appends to what is there, and lets nobody else read it", async () => {
    const file = newFile();
    for (const line of ["a\n", "b\n"]) {
      const { writer } = open({ file });
      writer.append(line);
      await writer.close();
    }
    expect(readFileSync(file, "utf8")).toBe("a\nb\n");
    expect(statSync(file).mode & 0o007).toBe(0);
  });

  it("a full disk fails its waiters, and the next try may succeed", async () => {
    const { writer, problems } = open({ file: "/dev/full" });
    const results: boolean[] = [];
    writer.append("a\n", { onWritten: (isWritten) => results.push(isWritten) });
    await until(() => results.length === 1, "failed");
    writer.append("b\n", { onWritten: (isWritten) => results.push(isWritten) });
    await until(() => results.length === 2, "failed again");
    expect(results).toEqual([false, false]);
    expect(problems).toEqual(["ENOSPC", "ENOSPC"]);
    await writer.close();
  });

  it.each([
    ["blocking", true],
    ["non-blocking", false],
  ])("a %s pipe whose reader is slow gets every byte in order", async (_what, isBlocking) => {
    const pipe = new Pipe(isBlocking);
    const { writer, problems } = open({ fd: pipe.writeFd });
    const lines = Array.from({ length: 500 }, (_, i) => `${i} ${"é".repeat(300)}\n`);
    let written = 0;
    for (const line of lines) {
      writer.append(line, {
        onWritten: (isWritten) => {
          written += isWritten ? 1 : 0;
        },
      });
    }
    const later = setTimeout(() => pipe.start(), 50);
    await until(() => written === lines.length, "written");
    clearTimeout(later);
    await until(() => pipe.text.length === lines.join("").length, "read");
    expect(pipe.text).toBe(lines.join(""));
    expect(problems).toEqual([]);
    await writer.close();
    pipe.close();
  });

  it("a reader that has stopped costs no more than the deadline; later lines begin on a line of their own", async () => {
    const pipe = new Pipe(false);
    const { writer, problems } = open({ fd: pipe.writeFd }, { writeTimeoutMs: 50 });
    const results: boolean[] = [];
    const waiter = { onWritten: (isWritten: boolean) => results.push(isWritten) };
    writer.append(`${"x".repeat(1_000_000)}\n`, waiter);
    await until(() => results.length === 1, "given up");
    expect([results, problems]).toEqual([[false], ["TIMEOUT"]]);
    pipe.start();
    await until(() => pipe.text.length > 0, "read");
    writer.append("next\n", waiter);
    await until(() => results.length === 2, "written");
    await until(() => pipe.text.includes("next"), "read");
    expect(pipe.text).toMatch(/x\nnext\n$/);
    await writer.close();
    pipe.close();
  });

  it("a reader that has stopped takes one thread of the process at most; once it reads again, lines are written", async () => {
    const pipe = new Pipe(true);
    const { writer, problems } = open({ fd: pipe.writeFd }, { writeTimeoutMs: 20 });
    const results: boolean[] = [];
    const waiter = { onWritten: (isWritten: boolean) => results.push(isWritten) };
    for (let i = 1; i <= 6; i += 1) {
      writer.append(`${"x".repeat(300_000)}\n`, waiter);
      await until(() => results.length === i, "given up");
    }
    let isRead = false;
    const read = readFile(newFile()).catch(() => {
      isRead = true;
    });
    // Whatever comes of it, the threads are let go.
    const later = setTimeout(() => pipe.start(), 4_000);
    await until(() => isRead || pipe.text !== "", "a file is read");
    expect([pipe.text.length, isRead, problems[0]]).toEqual([0, true, "TIMEOUT"]);
    expect(results).toEqual(Array(6).fill(false));
    clearTimeout(later);
    pipe.start();
    await read;
    await until(() => pipe.text.endsWith("x\n"), "the first line");
    writer.append("next\n", waiter);
    await until(() => pipe.text.endsWith("next\n"), "read");
    expect(pipe.text.length).toBe(300_000 + "\nnext\n".length);
    await until(() => results.length === 7, "told");
    expect(results[6]).toBe(true);
    await writer.close();
    pipe.close();
  });

  it("the queue has a cap", async () => {
    const { writer, problems } = open({ file: newFile() }, { maxQueueBytes: 10 });
    expect(writer.append("12345678\n")).toBe(true);
    expect(writer.append("12345678\n")).toBe(false);
    expect(problems).toEqual(["QUEUE_FULL"]);
    await writer.close();
    expect(writer.append("1\n")).toBe(false);
  });

  it("reopens after rotation", async () => {
    const file = newFile();
    const { writer } = open({ file });
    let written = 0;
    const waiter = {
      onWritten: () => {
        written += 1;
      },
    };
    writer.append("before\n", waiter);
    await until(() => written === 1, "written");
    renameSync(file, `${file}.1`);
    writer.reopen();
    writer.append("after\n", waiter);
    await until(() => written === 2, "written");
    expect([readFileSync(`${file}.1`, "utf8"), readFileSync(file, "utf8")]).toEqual(["before\n", "after\n"]);
    await writer.close();
  });

  it("a file that cannot be opened is an error at once", () => {
    expect(() => open({ file: join(folder, "no", "such", "folder") })).toThrow(/ENOENT/);
    expect(existsSync(join(folder, "no"))).toBe(false);
  });
});
