import { createTokenVerifier } from "/work/main/src/identity/index.ts";
import { systemClock } from "/work/main/src/lib/index.ts";
import { silentLogger } from "/work/main/src/telemetry/index.ts";
import { TestIssuer } from "/work/main/test/support/issuer.ts";
const i = await new TestIssuer().start();
const aud = "https://relay.example.com/acme/tickets/mcp";
const v = createTokenVerifier({ issuer: i.url }, { clock: systemClock, random: Math.random, logger: silentLogger });
for (const [alg, pad] of [["ES256", 20], ["RS256", 100]] as const) {
  await i.addKey(alg);
  const v2 = createTokenVerifier({ issuer: i.url }, { clock: systemClock, random: Math.random, logger: silentLogger });
  const t = await i.token({ claims: { groups: Array.from({ length: pad }, (_, k) => `group-${k}`) } });
  await v2.verify(t, aud);
  for (let r = 0; r < 5; r += 1) {
    const s = performance.now();
    for (let n = 0; n < 50_000; n += 1) v2.verify(t, aud);
    console.log(alg, t.length, ((performance.now() - s) * 1000 / 50_000).toFixed(2), "us");
  }
  await v2.close();
}
await v.close(); await i.close();
