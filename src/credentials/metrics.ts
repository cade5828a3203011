import { type Family, type MetricFamily, type Sample, single } from "../telemetry/index.ts";
import { type Condition, type CredentialState, type CredentialStates, labelOf, type StoreState } from "./states.ts";

const conditions: readonly Condition[] = ["none", "valid", "stale", "failed", "needs-reauth"];

/** What the credentials tell whoever scrapes: by server and by our own codes, never a path or a field. */
export function credentialMetrics({ servers, store }: CredentialStates): Family[] {
  const withCredential = servers.filter(({ type }) => type !== undefined);
  const bySeconds = (of: (state: CredentialState) => number | undefined): Sample[] =>
    withCredential.flatMap((state) => {
      const ms = of(state);
      return ms === undefined ? [] : [{ labels: { server: state.server }, value: ms / 1000 }];
    });
  return [
    {
      kind: "gauge",
      name: "postern_credentials_state",
      help: "1 for the state that the server's credential is in, 0 for the others.",
      samples: withCredential.flatMap(({ server, condition }) =>
        conditions.map((one) => ({ labels: { server, state: labelOf(one) }, value: one === condition ? 1 : 0 })),
      ),
    },
    {
      kind: "gauge",
      name: "postern_credentials_age_seconds",
      help: "Since what serves was read or bought.",
      samples: bySeconds(({ ageMs }) => ageMs),
    },
    {
      kind: "gauge",
      name: "postern_credentials_expires_seconds",
      help: "Until what serves ends by itself; absent for what does not.",
      samples: bySeconds(({ expiresInMs }) => expiresInMs),
    },
    {
      kind: "counter",
      name: "postern_credentials_loads_total",
      help: "Reads and grants for the server's credential, by result.",
      samples: withCredential.flatMap(({ server, loads, failures }) => [
        { labels: { server, result: "ok" }, value: loads },
        { labels: { server, result: "failed" }, value: failures },
      ]),
    },
    {
      kind: "gauge",
      name: "postern_credentials_callers",
      help: "Principals who have a secret of their own for the server, by the state that it is in.",
      samples: withCredential.flatMap(({ server, callers }) =>
        callers === undefined
          ? []
          : conditions.map((one) => ({ labels: { server, state: labelOf(one) }, value: callers[one] })),
      ),
    },
    {
      kind: "counter",
      name: "postern_credentials_rotations_total",
      help: "Of refresh tokens: refreshed by us, adopted from another gateway, refused for good, written late.",
      samples: withCredential.flatMap(({ server, rotation }) =>
        Object.entries(rotation ?? {}).map(([event, value]) => ({ labels: { server, event }, value })),
      ),
    },
    ...(store === undefined ? [] : storeMetrics(store)),
  ];
}

function storeMetrics(store: StoreState): MetricFamily[] {
  const results = (name: string, help: string, ok: number, failed: number): MetricFamily => ({
    kind: "counter",
    name,
    help,
    samples: [
      { labels: { result: "ok" }, value: ok },
      { labels: { result: "failed" }, value: failed },
    ],
  });
  const { tokenExpiresInMs, circuit } = store;
  return [
    single(
      "gauge",
      "postern_credentials_store_down",
      "1 while the store is known to be down and only probed now and then.",
      circuit.openForMs === undefined ? 0 : 1,
    ),
    single(
      "gauge",
      "postern_credentials_store_parts_down",
      "Leases and folders of mounts of which the same is true by themselves.",
      circuit.openParts.length,
    ),
    single(
      "counter",
      "postern_credentials_store_downs_total",
      "How often the store, or a part of it, came to be known as down.",
      circuit.opened,
    ),
    single(
      "counter",
      "postern_credentials_store_unsent_total",
      "Requests that were not made because of that.",
      circuit.refused,
    ),
    single(
      "gauge",
      "postern_credentials_store_token_valid",
      "1 while there is a token for the store.",
      store.condition === "valid" ? 1 : 0,
    ),
    {
      kind: "gauge",
      name: "postern_credentials_store_token_expires_seconds",
      help: "Until the store's token ends; absent for one that does not.",
      samples: tokenExpiresInMs === undefined ? [] : [{ value: tokenExpiresInMs / 1000 }],
    },
    results("postern_credentials_store_logins_total", "Logins to the store.", store.logins, store.loginFailures),
    results(
      "postern_credentials_store_renewals_total",
      "Renewals of the store's token.",
      store.renewals,
      store.renewalFailures,
    ),
    results("postern_credentials_store_reads_total", "Reads of entries.", store.reads, store.readFailures),
  ];
}
