import { startBao } from "./bao.ts";
import { AnswerCollector, type StoreAnswers } from "./store-answers.ts";

/** The answers of OpenBao, and which version gave them. */
export async function collectBaoAnswers(
  binary: string,
): Promise<{ readonly version: string; readonly answers: StoreAnswers }> {
  const bao = await startBao(binary);
  try {
    const health = await bao.call("GET", "sys/health");
    const collector = new AnswerCollector(bao);
    await collector.logins();
    await collector.maximum();
    await collector.reads();
    await collector.wrapping(async () => {
      await bao.call("POST", "auth/approle/role/wrapped", { token_ttl: "60s" });
      const headers = { "x-vault-token": bao.rootToken, "x-vault-wrap-ttl": "60s" };
      const path = "auth/approle/role/wrapped/secret-id";
      const answer = await fetch(`${bao.address}/v1/${path}`, { method: "POST", headers, body: "{}" });
      return ((await answer.json()) as { wrap_info: { token: string } }).wrap_info.token;
    });
    await collector.writes(
      async () => void (await bao.call("POST", "secret/metadata/mcp/strict", { cas_required: true })),
    );
    await bao.call("POST", "sys/quotas/rate-limit/tight", { rate: 1, path: "secret" });
    await collector.limited("rate-limited");
    // By default a client is not told how long to wait.
    await bao.call("POST", "sys/quotas/config", { enable_rate_limit_response_headers: true });
    await collector.limited("rate-limited-told");
    await bao.call("DELETE", "sys/quotas/rate-limit/tight");
    await collector.sealed();
    return { version: String(health["version"]), answers: collector.answers };
  } finally {
    await bao.stop();
  }
}
