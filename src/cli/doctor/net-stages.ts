/** The way to a host: its name, a connection, its certificate. Nothing is sent. */
import type { LookupAddress } from "node:dns";
import { connect, isIP } from "node:net";
import { connect as connectTls, type PeerCertificate, rootCertificates } from "node:tls";
import { addressRefused, guardedLookup, hostRefusal, type ResolveAll } from "../../lib/index.ts";
import { type Stage, Trouble } from "./stages.ts";

export interface Target {
  /** Stands before each stage's name. */
  readonly label: string;
  readonly url: URL;
  /** PEM text trusted beside the system's roots, once it was read. */
  readonly ca?: () => string | undefined;
  /** The key of the configuration that names it, for cures. */
  readonly key: string;
  /** The key for a CA; undefined where there is none. */
  readonly caKey?: string | undefined;
  /** The certificate is judged by a CA that only a later stage reads. */
  readonly isJudgedLater?: boolean;
  /** Stages that come first. */
  readonly needs?: readonly string[];
  /** Of names; the system's by default. */
  readonly resolve?: ResolveAll | undefined;
}

const expiresSoonMs = 14 * 24 * 3_600_000;
const maxShown = 100;

/** The stages to `target`; the last of them is what everything that goes there needs. */
export function netStages(target: Target): { readonly stages: readonly Stage[]; readonly last: string } {
  const { label, url } = target;
  const dns: Stage = { name: `${label} dns`, needs: target.needs ?? [], run: () => findAddress(target) };
  const tcp: Stage = { name: `${label} tcp`, needs: [dns.name], run: (signal) => reach(target, signal) };
  if (url.protocol !== "https:" && url.protocol !== "wss:") return { stages: [dns, tcp], last: tcp.name };
  const tls: Stage = { name: `${label} tls`, needs: [tcp.name], run: (signal) => shakeHands(target, signal) };
  return { stages: [dns, tcp, tls], last: tls.name };
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, "");
}

function portOf(url: URL): number {
  if (url.port !== "") return Number(url.port);
  return url.protocol === "https:" || url.protocol === "wss:" ? 443 : 80;
}

async function findAddress(target: Target): Promise<string> {
  const { url, key } = target;
  const host = hostOf(url);
  try {
    const refused = hostRefusal("pinned", host);
    if (refused !== undefined) throw refused;
    if (isIP(host) !== 0) return `${host} is an address`;
    return `${host} is ${(await lookUp(host, target)).join(", ")}`;
  } catch (error) {
    const code = codeOf(error);
    if (code === addressRefused) {
      const cure = `the host in ${key}, or what its name resolves to`;
      throw new Trouble(`${host} leads where nothing is dialled, as to a cloud's metadata service`, cure);
    }
    throw new Trouble(
      `${host} has no address: ${code}`,
      `the host in ${key}, or the name servers of this machine; a proxy is not used in this version`,
    );
  }
}

/** By the rules of the part itself: what it would not dial the doctor does not dial either. */
function lookUp(host: string, { resolve }: Target): Promise<string[]> {
  return new Promise((found, failed) => {
    guardedLookup("pinned", resolve)(host, { all: true }, (error, addresses) => {
      if (error === null) found((addresses as LookupAddress[]).map(({ address }) => address));
      else failed(error);
    });
  });
}

async function reach({ url, key, resolve: resolver }: Target, signal: AbortSignal): Promise<string> {
  const [host, port] = [hostOf(url), portOf(url)];
  return await new Promise((resolve, reject) => {
    const socket = connect({ host, port, lookup: guardedLookup("pinned", resolver) });
    signal.addEventListener("abort", () => socket.destroy());
    socket.once("connect", () => {
      resolve(`port ${port} answers at ${socket.remoteAddress ?? host}`);
      socket.destroy();
    });
    socket.once("error", (error) => {
      const cure = `what listens there, the port in ${key}, and the firewalls and network policies between`;
      reject(new Trouble(`port ${port} of ${host} is not reached: ${codeOf(error)}`, cure));
    });
  });
}

/** Looks at the certificate even where it is not to be trusted, to be able to name who issued it; then hangs up. */
async function shakeHands(target: Target, signal: AbortSignal): Promise<string> {
  const { url, key } = target;
  const ca = target.ca?.();
  const host = hostOf(url);
  return await new Promise((resolve, reject) => {
    const socket = connectTls({
      host,
      port: portOf(url),
      lookup: guardedLookup("pinned", target.resolve),
      servername: isIP(host) === 0 ? host : "",
      ALPNProtocols: ["http/1.1"],
      rejectUnauthorized: false,
      ...(ca === undefined ? {} : { ca: [...rootCertificates, ca] }),
    });
    signal.addEventListener("abort", () => socket.destroy());
    socket.once("secureConnect", () => {
      const certificate = socket.getPeerCertificate();
      const problem = socket.authorized ? undefined : String(socket.authorizationError);
      socket.destroy();
      if (problem === undefined || target.isJudgedLater === true)
        resolve(`${describe(certificate)}${soon(certificate)}`);
      else reject(distrust(target, problem, certificate));
    });
    socket.once("error", (error) => {
      reject(new Trouble(`no TLS with ${host}: ${codeOf(error)}`, `whether ${key} names a port that speaks TLS`));
    });
  });
}

function distrust({ caKey, key }: Target, problem: string, certificate: PeerCertificate): Trouble {
  const message = `the certificate is not trusted: ${shown(problem)}; ${describe(certificate)}`;
  if (/EXPIRED|NOT_YET_VALID/.test(problem))
    return new Trouble(message, "a new certificate there, or this machine's clock");
  if (/ALTNAME/.test(problem)) return new Trouble(message, `the host in ${key}: the certificate is for another name`);
  const inspection = "if a proxy that inspects TLS stands between, its CA is the issuer shown";
  const place = caKey === undefined ? "in the file of NODE_EXTRA_CA_CERTS" : `as ${caKey}`;
  return new Trouble(message, `the issuer's CA ${place}; ${inspection}`);
}

function describe({ issuer, valid_to: validTo }: PeerCertificate): string {
  const name = [issuer?.CN ?? issuer?.O].flat()[0];
  return `issued by ${shown(name ?? "nobody that it names")}, valid to ${shown(validTo ?? "an unknown day")}`;
}

function soon({ valid_to: validTo }: PeerCertificate): string {
  const left = Date.parse(validTo) - Date.now();
  return left < expiresSoonMs ? `: ONLY ${Math.floor(left / 86_400_000)} DAYS LEFT` : "";
}

/** What another machine says of itself. */
function shown(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, "?").slice(0, maxShown);
}

/** The code of a system's or OpenSSL's error, or of the first of several attempts. */
export function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null) return "unknown";
  if ("code" in error && typeof error.code === "string") return error.code;
  if ("errors" in error && Array.isArray(error.errors)) return codeOf(error.errors[0]);
  return "unknown";
}
