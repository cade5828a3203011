import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { stopGraceMs } from "../../src/cli/run.ts";
import { internalCa } from "../../test/support/internal-ca.ts";
import { readYamlBlocks } from "../../test/support/yaml-blocks.ts";
import { type Checks, expect } from "./checks.ts";
import {
  chartPath,
  type HelmValues,
  lintChart,
  only,
  type Part,
  parts,
  postern,
  type Rendered,
  renderChart,
  validateManifests,
  valueSets,
  valuesPath,
  writeProjectedVolume,
} from "./helm.ts";

interface Container {
  readonly args: readonly string[];
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
  readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
  readonly livenessProbe: { readonly httpGet: { readonly path: string } };
  readonly readinessProbe: { readonly httpGet: { readonly path: string } };
}

interface Pod {
  readonly automountServiceAccountToken: boolean;
  readonly terminationGracePeriodSeconds: number;
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly containers: readonly Container[];
  readonly volumes: readonly (Readonly<Record<string, unknown>> & { readonly name: string })[];
}

function podOf(rendered: Rendered): { readonly pod: Pod; readonly container: Container } {
  const { template } = only(rendered, "Deployment").spec as unknown as { template: { spec: Pod } };
  const [container] = template.spec.containers;
  if (container === undefined) throw new Error("a pod without a container");
  return { pod: template.spec, container };
}

const same = (actual: unknown, wanted: unknown, what: string): void => {
  expect(JSON.stringify(actual) === JSON.stringify(wanted), `${what} is ${JSON.stringify(actual)}`);
};

/** Pod Security Standard `restricted`, and a root that cannot be written. */
function checkRestricted(rendered: Rendered): void {
  const { pod, container } = podOf(rendered);
  const { runAsNonRoot, runAsUser, runAsGroup, seccompProfile } = pod.securityContext;
  same(runAsNonRoot, true, "runAsNonRoot");
  expect(typeof runAsUser === "number" && runAsUser > 0 && runAsGroup === runAsUser, "the user is no number above 0");
  same(seccompProfile, { type: "RuntimeDefault" }, "seccompProfile");
  const wanted = {
    allowPrivilegeEscalation: false,
    privileged: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ["ALL"] },
  };
  same(container.securityContext, wanted, "the container's securityContext");
}

/** Whatever may be written has a mount of its own; whatever has not is read-only. */
function checkWritablePaths(rendered: Rendered, part: Part): void {
  const { pod, container } = podOf(rendered);
  const writable = container.volumeMounts.filter(({ readOnly }) => readOnly !== true);
  for (const { name, mountPath } of writable) {
    const volume = pod.volumes.find((one) => one.name === name);
    expect(volume !== undefined, `${mountPath} has no volume`);
    expect(volume?.["projected"] === undefined, `${mountPath} is a projected volume and yet writable`);
  }
  const paths = writable.map(({ mountPath }) => mountPath);
  expect(paths.includes("/tmp"), "/tmp is not mounted");
  const file = /^\s+file: (\/\S+\.jsonl)$/m.exec(configFiles(rendered)[`${part}.yaml`] ?? "")?.[1];
  if (file === undefined) return;
  expect(
    paths.some((path) => file.startsWith(`${path}/`)),
    `${file} is not in one of ${paths.join(", ")}`,
  );
}

function checkLifecycle(rendered: Rendered): void {
  const { pod, container } = podOf(rendered);
  const leastSeconds = stopGraceMs / 1000 + (container.lifecycle?.preStop.sleep.seconds ?? 0);
  expect(pod.terminationGracePeriodSeconds >= leastSeconds + 5, `killed before ${leastSeconds + 5} s`);
  same(container.livenessProbe.httpGet.path, "/livez", "the liveness path");
  same(container.readinessProbe.httpGet.path, "/readyz", "the readiness path");
  const { strategy } = only(rendered, "Deployment").spec as { strategy: { rollingUpdate: unknown } };
  same(strategy.rollingUpdate, { maxUnavailable: 0, maxSurge: 1 }, "rollingUpdate");
}

export function configFiles(rendered: Rendered): Readonly<Record<string, string>> {
  return only(rendered, "ConfigMap").data ?? {};
}

interface ProjectedConfig {
  readonly projected?: {
    readonly sources: readonly { readonly configMap?: { readonly items?: readonly { path: string }[] } }[];
  };
}

/** Files of other ConfigMaps in the folder of the configuration: certificates, as far as anybody names them. */
function foreignFiles(rendered: Rendered): Readonly<Record<string, string>> {
  const { projected } = (podOf(rendered).pod.volumes.find(({ name }) => name === "config") ?? {}) as ProjectedConfig;
  const items = projected?.sources.flatMap(({ configMap }) => configMap?.items ?? []) ?? [];
  return Object.fromEntries(items.map(({ path }) => [path, internalCa]));
}

/** `postern check` on the files as the pod will see them. */
function checkConfig(rendered: Rendered, part: Part): void {
  const dir = mkdtempSync(join(tmpdir(), "postern-config-"));
  try {
    writeProjectedVolume(dir, { ...foreignFiles(rendered), ...configFiles(rendered) }, 0o444);
    const { status, stdout } = spawnSync(process.execPath, [postern, "check", "-c", join(dir, `${part}.yaml`)], {
      encoding: "utf8",
    });
    expect(status === 0, `postern check ended with ${status}\n${stdout}`);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

async function checkValueSet(checks: Checks, part: Part, set: string): Promise<void> {
  const name = (what: string): string => `chart postern-${part}, ${set} values: ${what}`;
  const values = { files: [valuesPath(part, set)] };
  await checks.check(name("helm lint --strict"), () => lintChart(part, values));
  let rendered: Rendered | undefined;
  await checks.check(name("helm template, and Kubernetes knows every field"), async () => {
    rendered = renderChart(part, values);
    const seen = await validateManifests(rendered.text);
    expect(seen > 0 && seen === rendered.manifests.length, `${seen} of ${rendered.manifests.length} validated`);
  });
  if (rendered === undefined) return;
  const done = rendered;
  await checks.check(name("C37 restricted, read-only root, numeric user"), () => checkRestricted(done));
  await checks.check(name("C37 every path that is written is mounted"), () => checkWritablePaths(done, part));
  await checks.check(name("probes, draining and rolling"), () => checkLifecycle(done));
  await checks.check(name("postern check takes the files of the ConfigMap"), () => checkConfig(done, part));
}

/** Values that must be refused, and what helm must say. */
const refusals: readonly (readonly [what: string, part: Part, set: Record<string, unknown>, says: RegExp])[] = [
  ["an unknown key", "gateway", { replica: 2 }, /replica/],
  ["no tunnel token", "gateway", { "tunnelToken.existingSecret": "" }, /existingSecret/],
  ["a literal tunnel token", "gateway", { "config.relay.token": "ptk_x" }, /token/],
  ["a plain WebSocket", "gateway", { "config.relay.url": "ws://relay.example.com" }, /url/],
  ["no server", "gateway", { "config.servers": null }, /servers/],
  ["an admin address of its own", "gateway", { "config.admin": { listen: "127.0.0.1:1" } }, /admin/],
  ["a policy in config", "gateway", { "config.policy": "./p.yaml" }, /policy/],
  ["a policy without version", "gateway", { "policy.version": 2 }, /version/],
  ["root", "gateway", { runAsUser: 0 }, /runAsUser/],
  ["a grace that cuts calls", "gateway", { terminationGracePeriodSeconds: 10 }, /terminationGracePeriodSeconds/],
  [
    "a secret file over the token",
    "gateway",
    { secretFiles: [{ secret: "s", key: "k", file: "tunnel-token" }] },
    /file/,
  ],
  ["a path as a file name", "gateway", { secretFiles: [{ secret: "s", key: "k", file: "../x" }] }, /file/],
  ["an audit file on the root", "gateway", { "config.audit": { file: "/audit.jsonl" } }, /auditVolume/],
  ["a bad digest", "gateway", { "image.digest": "sha256:12" }, /digest/],
  ["an egress to a name", "gateway", { "networkPolicy.egressTo": [{ cidr: "idp.example.com", ports: [443] }] }, /cidr/],
  ["an egress to every port", "relay", { "networkPolicy.egressTo": [{ cidr: "10.0.0.0/8", ports: [] }] }, /ports/],
  ["a file that no volume brings", "relay", { adminToken: { file: "/run/secrets/postern/admin-token" } }, /adminToken/],
  ["two relays", "relay", { replicas: 2 }, /replicas/],
  ["no tunnels", "relay", { "config.tunnels": null }, /tunnels/],
  ["a listen address", "relay", { "config.listen": "0.0.0.0:1" }, /listen/],
  ["a grace under preStop", "relay", { preStopSeconds: 30 }, /at least 60/],
];

async function checkRefusals(checks: Checks): Promise<void> {
  for (const [what, part, set, says] of refusals) {
    await checks.check(`chart postern-${part} refuses ${what}`, () => {
      expectRefusal(part, { files: [valuesPath(part, "minimal")], set }, says);
    });
  }
  for (const part of parts) {
    await checks.check(`chart postern-${part} without values names what is missing`, () => {
      expectRefusal(part, {}, /config/);
    });
  }
}

function expectRefusal(part: Part, values: HelmValues, says: RegExp): void {
  let rendered: Rendered;
  try {
    rendered = renderChart(part, values);
  } catch (error) {
    const text = (error as { stderr?: string }).stderr ?? "";
    expect(says.test(text), `helm refused with other words: ${text}`);
    return;
  }
  throw new Error(`helm rendered ${rendered.manifests.length} manifests`);
}

async function checkNetworkPolicies(checks: Checks): Promise<void> {
  const policy = (part: Part): Record<string, unknown> => {
    const rendered = renderChart(part, { files: [valuesPath(part, "minimal")] });
    return only(rendered, "NetworkPolicy").spec as Record<string, unknown>;
  };
  const tcp = (port: number | string): unknown => ({ protocol: "TCP", port });
  const dns = { ports: [{ protocol: "UDP", port: 53 }, tcp(53)] };
  await checks.check("the gateway's NetworkPolicy lets nothing in, and out DNS and the ports of its config", () => {
    const { policyTypes, ingress, egress } = policy("gateway");
    same(policyTypes, ["Ingress", "Egress"], "policyTypes");
    same(ingress, [], "ingress");
    same(egress, [dns, { ports: [tcp(3000), tcp(443)] }], "egress");
  });
  await checks.check("an issuer in the config opens HTTPS in the NetworkPolicy", () => {
    const agents = [{ oauth: { issuer: "https://idp.example.com" }, servers: ["tickets"] }];
    const set = { "config.tunnels.acme.agents": agents };
    const rendered = renderChart("relay", { files: [valuesPath("relay", "minimal")], set });
    const { egress } = only(rendered, "NetworkPolicy").spec as { egress: unknown };
    same(egress, [dns, { ports: [tcp(443)] }], "egress");
    checkConfig(rendered, "relay");
  });
  await checks.check("hosts that are named with their ports are reached beside the default", () => {
    const set = { "networkPolicy.egressTo": [{ cidr: "203.0.113.7/32", ports: [8443, 9443] }] };
    const added = { to: [{ ipBlock: { cidr: "203.0.113.7/32" } }], ports: [tcp(8443), tcp(9443)] };
    const defaults = { gateway: [dns, { ports: [tcp(3000), tcp(443)] }], relay: [dns] };
    for (const part of ["gateway", "relay"] as const) {
      const rendered = renderChart(part, { files: [valuesPath(part, "minimal")], set });
      const { egress } = only(rendered, "NetworkPolicy").spec as { egress: unknown };
      same(egress, [...defaults[part], added], `egress of the ${part}`);
      const full = renderChart(part, { files: [valuesPath(part, "full")], set });
      const { egress: all } = only(full, "NetworkPolicy").spec as { egress: readonly unknown[] };
      same(all.at(-1), added, `the last egress of the ${part}, beside rules of its own`);
    }
  });
  await checks.check("the relay's NetworkPolicy lets in its public port, and nothing out", () => {
    const { ingress, egress } = policy("relay");
    same(ingress, [{ ports: [tcp("http")] }], "ingress");
    same(egress, [], "egress");
  });
  await checks.check("the admin port opens to the peers that are named, and to nobody else", () => {
    const from = [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "monitoring" } } }];
    for (const part of ["gateway", "relay"] as const) {
      const rendered = renderChart(part, { files: [valuesPath(part, "full")] });
      const { ingress } = only(rendered, "NetworkPolicy").spec as { ingress: readonly unknown[] };
      same(ingress.at(-1), { ports: [tcp("admin")], from }, `ingress of the ${part}`);
    }
  });
}

async function checkRolling(checks: Checks): Promise<void> {
  const checksum = (set: Record<string, unknown>): string => {
    const { text } = renderChart("gateway", { files: [valuesPath("gateway", "minimal")], set });
    return /checksum\/config: (\w+)/.exec(text)?.[1] ?? "";
  };
  await checks.check("a changed policy rolls the pods, a changed replica count does not", () => {
    const before = checksum({});
    expect(before !== "", "there is no checksum");
    expect(checksum({ "policy.servers.wiki.tools": ["search"] }) !== before, "the checksum stayed");
    expect(checksum({ replicas: 5 }) === before, "the checksum changed");
  });
}

/** The values that docs/operations.md shows make a release, whose files are accepted. */
async function checkDocumentedValues(checks: Checks): Promise<void> {
  const document = fileURLToPath(new URL("../../docs/operations.md", import.meta.url));
  const blocks = readYamlBlocks(readFileSync(document, "utf8"));
  for (const part of parts) {
    await checks.check(`chart postern-${part} takes the values of docs/operations.md`, () => {
      const dir = mkdtempSync(join(tmpdir(), "postern-values-"));
      try {
        const file = join(dir, "values.yaml");
        writeFileSync(file, blocks[`${part}-values.yaml`] ?? "");
        checkConfig(renderChart(part, { files: [file] }), part);
      } finally {
        rmSync(dir, { recursive: true, force: true });
      }
    });
  }
}

export async function checkCharts(checks: Checks): Promise<void> {
  console.log(`charts: ${parts.map(chartPath).join(", ")}`);
  for (const part of parts) for (const set of valueSets) await checkValueSet(checks, part, set);
  await checkRefusals(checks);
  await checkNetworkPolicies(checks);
  await checkRolling(checks);
  await checkDocumentedValues(checks);
}
