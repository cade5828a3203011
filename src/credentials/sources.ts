import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import type { EnvSource, FileSource, LocalSource } from "./options.ts";
import { cutNewline } from "./shapes.ts";

/** The process environment, passed in; a variable that was read as a secret is removed from it. */
export type Environment = Record<string, string | undefined>;

export interface ReadSecretDeps {
  readonly env: Environment;
  readonly logger: Logger;
}

const maxFileBytes = 64 * 1024;
const worldWritable = 0o002;
const worldReadable = 0o004;

/** What was taken out of an environment, so that two sources may name one variable. */
const taken = new WeakMap<Environment, Map<string, Secret>>();

/** Reads local sources; remembers only which files it has warned about. */
export class LocalReader {
  readonly #env: Environment;
  readonly #logger: Logger;
  readonly #warned = new Set<string>();

  constructor(deps: ReadSecretDeps) {
    this.#env = deps.env;
    this.#logger = deps.logger;
  }

  /** Rejects with a `CredentialError`. A file is read anew each time, since mounted secrets are rotated in place. */
  async read(source: LocalSource): Promise<Secret> {
    return "env" in source ? takeVariable(source, this.#env) : await this.#readFile(source);
  }

  async #readFile(source: FileSource): Promise<Secret> {
    const handle = await openFile(source.file);
    try {
      const { mode, text } = await readHandle(handle, source.file);
      if ((mode & worldReadable) !== 0) this.#warnOnce(source.file);
      return notEmpty(text, `file ${source.file}`);
    } finally {
      await handle.close();
    }
  }

  #warnOnce(file: string): void {
    if (this.#warned.has(file)) return;
    this.#warned.add(file);
    this.#logger.warn("secret file is readable by everybody", { file, cure: `chmod o-r ${file}` });
  }
}

/** The secret that `source` names; rejects with a `CredentialError` that names the place, never the value. */
export async function readSecret(source: LocalSource, deps: ReadSecretDeps): Promise<Secret> {
  return await new LocalReader(deps).read(source);
}

function takeVariable(source: EnvSource, env: Environment): Secret {
  const known = taken.get(env) ?? new Map<string, Secret>();
  taken.set(env, known);
  const before = known.get(source.env);
  if (before !== undefined) return before;
  const text = Object.hasOwn(env, source.env) ? env[source.env] : undefined;
  if (text === undefined) {
    const place = `environment variable ${source.env}`;
    throw new CredentialError("source-missing", `${place} is not set`, `set ${source.env}, or name a file instead`);
  }
  // Child processes and diagnostic reports copy the environment.
  delete env[source.env];
  const secret = notEmpty(text, `environment variable ${source.env}`);
  known.set(source.env, secret);
  return secret;
}

/** Opening must not hang on a pipe, hence O_NONBLOCK; what was opened is what is checked and read. */
async function openFile(file: string): Promise<FileHandle> {
  try {
    return await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw openFailure(file, (error as NodeJS.ErrnoException).code);
  }
}

function openFailure(file: string, code: string | undefined): CredentialError {
  if (code === "ENOENT" || code === "ENOTDIR") {
    return new CredentialError(
      "source-missing",
      `file ${file} does not exist`,
      "mount the secret there, or correct the path",
    );
  }
  const reason = code === "EACCES" || code === "EPERM" ? "is not readable by this user" : "cannot be opened";
  return new CredentialError("source-unreadable", `file ${file} ${reason}`, "check its owner, mode and mount");
}

async function readHandle(handle: FileHandle, file: string): Promise<{ mode: number; text: string }> {
  const stats = await handle.stat();
  if (!stats.isFile()) throw unreadable(file, "is not a regular file", "name a regular file");
  if ((stats.mode & worldWritable) !== 0) {
    throw new CredentialError("source-unsafe", `file ${file} is writable by everybody`, `chmod o-w ${file}`);
  }
  // Read by length, not by the size reported: a file may grow between the two.
  const buffer = Buffer.alloc(maxFileBytes + 1);
  try {
    const length = await fill(handle, buffer, file);
    return { mode: stats.mode, text: cutNewline(decode(buffer.subarray(0, length), file)) };
  } finally {
    buffer.fill(0);
  }
}

function decode(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw unreadable(file, "is not UTF-8 text", "store the secret as text");
  }
}

async function fill(handle: FileHandle, buffer: Buffer, file: string): Promise<number> {
  let length = 0;
  while (length < buffer.length) {
    const { bytesRead } = await readChunk(handle, buffer, length, file);
    if (bytesRead === 0) return length;
    length += bytesRead;
  }
  throw unreadable(file, "is larger than 64 KiB", "name the file that holds the secret alone");
}

async function readChunk(
  handle: FileHandle,
  buffer: Buffer,
  offset: number,
  file: string,
): Promise<{ bytesRead: number }> {
  try {
    return await handle.read(buffer, offset, buffer.length - offset, offset);
  } catch {
    throw unreadable(file, "cannot be read", "check the disk or mount that it is on");
  }
}

function unreadable(file: string, what: string, cure: string): CredentialError {
  return new CredentialError("source-unreadable", `file ${file} ${what}`, cure);
}

function notEmpty(text: string, place: string): Secret {
  if (text === "") throw new CredentialError("value-empty", `${place} is empty`, `put the secret into ${place}`);
  return new Secret(text);
}
