/** What kind of place an IP address or a host name means, by its bytes and not by its spelling. */
import { isIP } from "node:net";

/**
 * - `metadata`: a cloud's metadata service, which hands out credentials to whoever asks from this machine.
 * - `loopback`: this machine.
 * - `private`: a network behind something: private, shared, link-local, multicast, reserved and documentation ranges.
 * - `public`: anything else.
 */
export type AddressRange = "metadata" | "loopback" | "private" | "public";

type Bytes = readonly number[];

/** AWS, GCP, Azure, OpenStack · ECS · EKS · Alibaba · Oracle · Azure's wire server · the same in IPv6 (EC2, EKS, GCP). */
const metadataAddresses: readonly string[] = [
  "169.254.169.254",
  "169.254.170.2",
  "169.254.170.23",
  "100.100.100.200",
  "192.0.0.192",
  "168.63.129.16",
  "fd00:ec2::254",
  "fd00:ec2::23",
  "fd20:ce::254",
];
const metadataNames: ReadonlySet<string> = new Set(["metadata.google.internal", "metadata.goog"]);

/** Prefix and its length in bits. IANA special-purpose address registries (RFC 6890 and its updates). */
const loopbackRanges = ["0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128"].map(parseRange);
const privateRanges = [
  "10.0.0.0/8",
  "100.64.0.0/10",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/3",
  "2001::/23",
  "2001:db8::/32",
  "3fff::/20",
].map(parseRange);
/** The only part of IPv6 that is routed to everybody. */
const globalUnicast = parseRange("2000::/3");
/** An IPv4 address within an IPv6 one: where it stands, and whether its bits are turned over. */
const embeddings: readonly { readonly range: Range; readonly at: number; readonly mask: number }[] = [
  { range: parseRange("::ffff:0:0/96"), at: 12, mask: 0 }, // mapped
  { range: parseRange("::ffff:0:0:0/96"), at: 12, mask: 0 }, // translated
  { range: parseRange("::/96"), at: 12, mask: 0 }, // compatible
  { range: parseRange("64:ff9b::/96"), at: 12, mask: 0 }, // NAT64
  { range: parseRange("64:ff9b:1::/48"), at: 12, mask: 0 }, // NAT64, local
  { range: parseRange("2002::/16"), at: 2, mask: 0 }, // 6to4
  { range: parseRange("2001::/32"), at: 12, mask: 0xff }, // Teredo
];

const localNat64 = parseRange("64:ff9b:1::/48");
/** Where a NAT64 prefix of 48, 56 or 64 bits has the address: byte 8 is left out (RFC 6052, 2.2). */
const spreads: readonly (readonly number[])[] = [
  [6, 7, 9, 10],
  [7, 9, 10, 11],
  [9, 10, 11, 12],
];

/** Of a host as a URL has it: an address, in brackets or not, or a name; a name tells only what no look-up is needed for. */
export function rangeOf(host: string): AddressRange | undefined {
  const bytes = bytesOf(host.replace(/^\[(.*)\]$/, "$1"));
  if (bytes !== undefined) return rangeOfBytes(bytes);
  const name = host.toLowerCase().replace(/\.$/, "");
  if (metadataNames.has(name)) return "metadata";
  return name === "localhost" || name.endsWith(".localhost") ? "loopback" : undefined;
}

function rangeOfBytes(bytes: Bytes): AddressRange {
  if (isMetadata(bytes) || (isWithin(bytes, localNat64) && spreads.some((at) => isMetadata(pickBytes(bytes, at))))) {
    return "metadata";
  }
  if (loopbackRanges.some((range) => isWithin(bytes, range))) return "loopback";
  for (const { range, at, mask } of embeddings) {
    if (isWithin(bytes, range)) return rangeOfBytes(bytes.slice(at, at + 4).map((byte) => byte ^ mask));
  }
  const isPrivate = privateRanges.some((range) => isWithin(bytes, range));
  return isPrivate || (bytes.length === 16 && !isWithin(bytes, globalUnicast)) ? "private" : "public";
}

function isMetadata(bytes: Bytes): boolean {
  return metadata.some((known) => isEqual(known, bytes));
}

function pickBytes(bytes: Bytes, at: readonly number[]): Bytes {
  return at.map((i) => bytes[i] ?? 0);
}

interface Range {
  readonly prefix: Bytes;
  readonly bits: number;
}

function parseRange(text: string): Range {
  const [address = "", bits = ""] = text.split("/");
  return { prefix: bytesOf(address) ?? [], bits: Number(bits) };
}

function isWithin(bytes: Bytes, { prefix, bits }: Range): boolean {
  if (bytes.length !== prefix.length) return false;
  return bytes.every((byte, i) => {
    const left = Math.min(8, Math.max(0, bits - 8 * i));
    const mask = (0xff << (8 - left)) & 0xff;
    return (byte & mask) === ((prefix[i] ?? 0) & mask);
  });
}

function isEqual(one: Bytes, other: Bytes): boolean {
  return one.length === other.length && one.every((byte, i) => byte === other[i]);
}

/** 4 or 16 bytes; undefined for what is no address. */
function bytesOf(text: string): Bytes | undefined {
  const [address = ""] = text.split("%");
  const family = isIP(address);
  if (family === 4) return address.split(".").map(Number);
  return family === 6 ? bytesOfV6(address) : undefined;
}

function bytesOfV6(address: string): Bytes {
  const [head = "", tail] = address.split("::");
  const before = groupsOf(head);
  const after = tail === undefined ? [] : groupsOf(tail);
  return [...before, ...new Array<number>(16 - before.length - after.length).fill(0), ...after];
}

function groupsOf(text: string): number[] {
  if (text === "") return [];
  return text.split(":").flatMap((group) => {
    if (group.includes(".")) return group.split(".").map(Number);
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}

const metadata = metadataAddresses.map((text) => bytesOf(text) ?? []);
