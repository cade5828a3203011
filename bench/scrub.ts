/** Speed of the scrubber: `node bench/scrub.ts`. Prints one JSON object; MB are 10^6 bytes. */
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
  const startedAt = performance.now();
  let rounds = 0;
  while (performance.now() - startedAt < 500) {
    run();
    rounds += 1;
  }
  return Math.round((bytes * rounds) / (performance.now() - startedAt) / 1000);
}

const noHits = { matcher: () => matcher, onReflect: "redact", onHits: () => undefined } as const;
const whole = (bytes: Buffer): (() => void) => {
  const scrubber = new AnswerScrubber(noHits);
  return () => scrubber.whole(bytes, (json) => json);
};
const large = sampleText(1024 * 1024);
const escaped = Buffer.from(large.toString().replaceAll("í", "\\u00ed"));
const small = Buffer.from(
  `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${"x y ".repeat(50)}"}]}}`,
);
const byteScrubber = new ByteScrubber(matcher);
const chunks = Array.from({ length: 16 }, (_, i) => large.subarray(i * 65_536, (i + 1) * 65_536));

const report = {
  needles: needles.length,
  longestBytes: matcher.maxBytes,
  wholeMbPerS: rate(large.length, whole(large)),
  wholeWithEscapesMbPerS: rate(escaped.length, whole(escaped)),
  streamedMbPerS: rate(large.length, () => chunks.forEach((chunk) => byteScrubber.push(chunk))),
  smallCallMicroseconds: Math.round((small.length / rate(small.length, whole(small))) * 1000) / 1000,
  indexOfPerNeedleMbPerS: rate(large.length, () => needles.forEach((needle) => large.indexOf(needle))),
};
process.stdout.write(`${JSON.stringify(report, undefined, 2)}\n`);
