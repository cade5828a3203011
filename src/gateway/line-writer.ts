import { close, fstatSync, openSync, write, writeSync } from "node:fs";
import type { Clock, Timer } from "../lib/index.ts";

/**
 * Appends lines to a file or an inherited descriptor. Lines of one tick become one write; whoever asked for a line hears
 * when it was handed to the kernel, or that it was not.
 *
 * A regular file is written synchronously, which is quicker than a trip to the thread pool and never waits for a reader;
 * a pipe or terminal is written from the thread pool, since its reader may have stopped.
 */

export interface LineWaiter {
  /** Called once, never from within `append`. */
  onWritten(isWritten: boolean): void;
}

export type LineTarget = { readonly file: string } | { readonly fd: number };

/** The lines of one write, which all go to one descriptor: a rotation in between tears none of them apart. */
interface Group {
  readonly fd: number;
  readonly bytes: Buffer;
  offset: number;
  readonly waiters: readonly LineWaiter[];
}

const retryMs = 5;
const newline = 0x0a;

export class LineWriter {
  readonly #target: LineTarget;
  readonly #clock: Clock;
  readonly #maxQueueBytes: number;
  readonly #writeTimeoutMs: number;
  readonly #onProblem: (code: string) => void;
  #fd: number;
  #isRegularFile = false;
  #lines = "";
  #waiters: LineWaiter[] = [];
  #isScheduled = false;
  #writing: Group | undefined;
  /** Of a write that has not come back: another one would hold another of the few threads that all of Node's I/O shares. */
  #fdInKernel: number | undefined;
  /** Descriptors of ours that no new line is written to, and that still have to be closed. */
  readonly #retired = new Set<number>();
  #timer: Timer | undefined;
  /** A write broke off within a line: the next one begins on a line of its own. */
  #isTorn = false;
  #isClosed = false;
  #idle: (() => void)[] = [];

  /** Throws what `fs.openSync` throws when the file cannot be opened. */
  constructor(options: {
    readonly target: LineTarget;
    readonly clock: Clock;
    readonly maxQueueBytes: number;
    readonly writeTimeoutMs: number;
    /** A write failed; `code` is Node's, `TIMEOUT`, `BLOCKED` (an earlier write that timed out), `CLOSED` or `QUEUE_FULL`. */
    readonly onProblem: (code: string) => void;
  }) {
    this.#target = options.target;
    this.#clock = options.clock;
    this.#maxQueueBytes = options.maxQueueBytes;
    this.#writeTimeoutMs = options.writeTimeoutMs;
    this.#onProblem = options.onProblem;
    this.#fd = this.#open();
  }

  /** `line` ends in a newline. False: the queue is full, the line is dropped and the waiter is not called. */
  append(line: string, waiter?: LineWaiter): boolean {
    if (this.#isClosed || this.#lines.length + line.length > this.#maxQueueBytes) {
      this.#onProblem(this.#isClosed ? "CLOSED" : "QUEUE_FULL");
      return false;
    }
    this.#lines += line;
    if (waiter !== undefined) this.#waiters.push(waiter);
    this.#schedule();
    return true;
  }

  /** Opens the file anew, for log rotation. A descriptor stays as it is. Throws like the constructor; the old file then stays in use. */
  reopen(): void {
    if (this.#isClosed || !("file" in this.#target)) return;
    const old = this.#fd;
    this.#fd = this.#open();
    this.#retired.add(old);
    this.#closeRetired();
  }

  /** Resolves when everything was written or given up; nothing is taken after that. */
  async close(): Promise<void> {
    while (this.#writing !== undefined || this.#lines !== "") {
      await new Promise<void>((resolve) => this.#idle.push(resolve));
    }
    if (this.#isClosed) return;
    this.#isClosed = true;
    if ("file" in this.#target) this.#retired.add(this.#fd);
    this.#closeRetired();
  }

  /** A closed descriptor's number may be another file's a moment later: none is closed that a write can still be using. */
  #closeRetired(): void {
    for (const fd of this.#retired) {
      if (fd === this.#fdInKernel || fd === this.#writing?.fd) continue;
      this.#retired.delete(fd);
      close(fd, () => undefined);
    }
  }

  #open(): number {
    // 0o640: the records name principals and tools, nobody else's business.
    const fd = "file" in this.#target ? openSync(this.#target.file, "a", 0o640) : this.#target.fd;
    this.#isRegularFile = fstatSync(fd).isFile();
    return fd;
  }

  #schedule(): void {
    if (this.#isScheduled || this.#writing !== undefined) return;
    this.#isScheduled = true;
    // After the callbacks that are running now, so that all calls of one tunnel message share a write.
    process.nextTick(() => this.#flush());
  }

  #flush(): void {
    this.#isScheduled = false;
    if (this.#writing !== undefined || this.#lines === "") return;
    const text = this.#isTorn ? `\n${this.#lines}` : this.#lines;
    this.#writing = { fd: this.#fd, bytes: Buffer.from(text, "utf8"), offset: 0, waiters: this.#waiters };
    this.#lines = "";
    this.#waiters = [];
    if (this.#isRegularFile) this.#writeSync();
    else if (this.#fdInKernel !== undefined) this.#settle("BLOCKED");
    else this.#writeAsync();
  }

  #writeSync(): void {
    const group = this.#writing;
    if (group === undefined) return;
    try {
      while (group.offset < group.bytes.length) group.offset += writeSync(group.fd, group.bytes, group.offset);
      this.#settle(undefined);
    } catch (error) {
      this.#settle(codeOf(error));
    }
  }

  #writeAsync(): void {
    this.#timer ??= this.#clock.after(this.#writeTimeoutMs, () => this.#settle("TIMEOUT"));
    const group = this.#writing;
    if (group === undefined) return;
    this.#fdInKernel = group.fd;
    write(group.fd, group.bytes, group.offset, group.bytes.length - group.offset, null, (error, written) => {
      this.#fdInKernel = undefined;
      if (error === null) group.offset += written;
      // After a timeout the group was given up, though its bytes have left now.
      if (this.#writing !== group) {
        this.#noteTear(group);
        this.#closeRetired();
        return;
      }
      if (error !== null && error.code !== "EAGAIN") return this.#settle(error.code ?? "unknown");
      if (group.offset >= group.bytes.length) this.#settle(undefined);
      else if (error === null) this.#writeAsync();
      else this.#clock.after(retryMs, () => this.#writing === group && this.#writeAsync());
    });
  }

  #settle(problem: string | undefined): void {
    const group = this.#writing;
    if (group === undefined) return;
    this.#writing = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#noteTear(group);
    if (this.#retired.size > 0) this.#closeRetired();
    if (problem !== undefined) this.#onProblem(problem);
    for (const waiter of group.waiters) waiter.onWritten(problem === undefined);
    if (this.#lines !== "") this.#schedule();
    else for (const resolve of this.#idle.splice(0)) resolve();
  }

  #noteTear(group: Group): void {
    if (group.offset > 0) this.#isTorn = group.bytes[group.offset - 1] !== newline;
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "unknown";
}
