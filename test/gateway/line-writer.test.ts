import { execFileSync } from "node:child_process";
import {
  closeSync,
  constants,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
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
  readonly path: string;
  readonly writeFd: number;
  #isWriterOpen = true;
  readonly #reader: Socket;
  readonly #chunks: Buffer[] = [];

  constructor(isBlocking: boolean) {
    count += 1;
    this.path = join(folder, `pipe-${count}`);
    execFileSync("mkfifo", [this.path]);
    const readFd = openSync(this.path, constants.O_RDONLY | constants.O_NONBLOCK);
    this.writeFd = openSync(this.path, isBlocking ? "w" : constants.O_WRONLY | constants.O_NONBLOCK);
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

  /** For whoever opens its path. */
  closeWriter(): void {
    if (this.#isWriterOpen) closeSync(this.writeFd);
    this.#isWriterOpen = false;
  }

  close(): void {
    this.#reader.destroy();
    this.closeWriter();
  }
}

/** How many descriptors of this process stand for that file. */
function openFds(path: string): number {
  return readdirSync("/proc/self/fd").filter((fd) => linkOf(`/proc/self/fd/${fd}`) === path).length;
}

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

/** Whatever was to be closed by now is closed: the threads take their work in order, and only one of them is held up. */
async function closesDone(): Promise<void> {
  for (let i = 0; i < 8; i += 1) await readFile("/dev/null");
}

/** A writer on a pipe whose reader has stopped, amid a write that takes 300,001 bytes. */
async function stalledPipe(writeTimeoutMs: number) {
  const old = new Pipe(true);
  const { writer, problems } = open({ file: old.path }, { writeTimeoutMs });
  old.closeWriter();
  const results: boolean[] = [];
  const waiter = { onWritten: (isWritten: boolean) => results.push(isWritten) };
  writer.append(`${"x".repeat(300_000)}\n`, waiter);
  await closesDone();
  return { path: old.path, old, writer, problems, results, waiter };
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

  describe.each([
    ["a file", (path: string) => writeFileSync(path, "")],
    ["another pipe", (path: string) => execFileSync("mkfifo", [path])],
  ])("a pipe that is rotated to %s while a write on it is under way", (_what, makeNext) => {
    it("is closed when that write has come back, and gets the whole of it", async () => {
      const { path, old, writer, problems, results, waiter } = await stalledPipe(60_000);
      renameSync(path, `${path}.1`);
      makeNext(path);
      const nextFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
      writer.reopen();
      writer.append("after\n", waiter);
      await closesDone();
      expect(openFds(`${path}.1`)).toBe(2);
      old.start();
      await until(() => results.length === 2, "written");
      await until(() => old.text.length === 300_001, "read");
      await until(() => openFds(`${path}.1`) === 0, "both ends are closed");
      expect([results, problems, old.text.endsWith("x\n")]).toEqual([[true, true], [], true]);
      await writer.close();
      await until(() => openFds(path) === 1, "closed as well");
      const text = Buffer.alloc(100);
      expect(text.toString("utf8", 0, readSync(nextFd, text))).toBe("after\n");
      closeSync(nextFd);
      old.close();
    });
  });

  it("a pipe is not closed under a write that was given up, neither by rotation nor at the end", async () => {
    const { path, old, writer, problems, results } = await stalledPipe(20);
    await until(() => results.length === 1, "given up");
    writer.reopen();
    await writer.close();
    await closesDone();
    // The reader's, and the one that the write is on; the one that replaced it is gone.
    expect([problems, openFds(path)]).toEqual([["TIMEOUT"], 2]);
    old.start();
    await until(() => openFds(path) === 0, "both ends are closed");
    expect(old.text.length).toBe(300_001);
    old.close();
  });

  it("a rotation after the end opens nothing, and closes nobody else's file under the old number", async () => {
    const file = newFile();
    const { writer } = open({ file });
    await writer.close();
    await until(() => openFds(file) === 0, "closed");
    const others = [newFile(), newFile(), newFile()].map((path) => openSync(path, "w"));
    writer.reopen();
    await closesDone();
    expect(openFds(file)).toBe(0);
    for (const fd of others) closeSync(fd);
  });

  it("a file that cannot be opened is an error at once", () => {
    expect(() => open({ file: join(folder, "no", "such", "folder") })).toThrow(/ENOENT/);
    expect(existsSync(join(folder, "no"))).toBe(false);
  });
});
