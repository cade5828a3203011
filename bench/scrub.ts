/** Speed of the scrubber: `npx tsx bench/scrub.ts`. Prints one JSON object; MB are 10^6 bytes, seconds are of CPU. */
import { randomBytes } from "node:crypto";
import { needlesOf } from "../src/credentials/index.ts";
import { AnswerScrubber } from "../src/gateway/answer-scrubber.ts";
import { ByteScrubber } from "../src/gateway/byte-scrubber.ts";
import { NeedleMatcher } from "../src/gateway/needle-matcher.ts";
import { Secret } from "../src/lib/index.ts";

const secrets = Array.from({ length: 4 }, (_, i) => new Secret(`${randomBytes(24).toString("base64")}"<${i}>`));
const { needles } = needlesOf({ headers: [], secrets });
const matcher = new NeedleMatcher(needles);

/** Ordinary text of a tool: words, numbers and JSON escapes. */
function sampleText(size: number): Buffer {
  const words = [
    "issue",
    "título",
    "open",
    '\\"status\\"',
    "https://example.com/a?b=c",
    "2f8a61c09d",
    "\\n",
    "user_id",
  ];
  let text = "";
  for (let i = 0; text.length < size; i += 1) text += `${words[(i * 7 + (i >> 3)) % words.length]} ${i} `;
  return Buffer.from(text).subarray(0, size);
}

function rate(bytes: number, run: () => void): number {
  for (let i = 0; i < 20; i += 1) run();
  const before = process.cpuUsage();
  const rounds = Math.ceil(2e8 / bytes);
  for (let i = 0; i < rounds; i += 1) run();
  const { user, system } = process.cpuUsage(before);
  return Math.round((bytes * rounds) / (user + system));
}

const noHits = { matcher: () => matcher, onReflect: "redact", onHits: () => undefined } as const;
const whole = (bytes: Buffer): (() => void) => {
  const scrubber = new AnswerScrubber(noHits);
  return () => scrubber.whole(bytes, (json) => json);
};
const large = sampleText(1024 * 1024);
const accents = Buffer.from(large.toString().replaceAll("í", "\\u00ed"));
const escapes = Buffer.from(large.toString().replaceAll("í", "\\u0069"));
const small = Buffer.from(
  `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${"x y ".repeat(50)}"}]}}`,
);
const byteScrubber = new ByteScrubber(matcher);
const chunks = Array.from({ length: 16 }, (_, i) => large.subarray(i * 65_536, (i + 1) * 65_536));

const report = {
  needles: needles.length,
  longestBytes: matcher.maxBytes,
  wholeMbPerS: rate(large.length, whole(large)),
  wholeWithAccentsMbPerS: rate(accents.length, whole(accents)),
  wholeWithEscapesMbPerS: rate(escapes.length, whole(escapes)),
  streamedMbPerS: rate(large.length, () => chunks.map((chunk) => byteScrubber.push(chunk))),
  smallCallMicroseconds: Math.round((small.length / rate(small.length, whole(small))) * 1000) / 1000,
  indexOfPerNeedleMbPerS: rate(large.length, () => needles.map((needle) => large.indexOf(needle))),
};
process.stdout.write(`${JSON.stringify(report, undefined, 2)}\n`);
