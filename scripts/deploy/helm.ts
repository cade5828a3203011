import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";

const root = fileURLToPath(new URL("../../", import.meta.url));
const helm = join(root, ".cache/bin/helm");
const python = join(root, ".cache/kubernetes-validate/bin/python");
export const postern = join(root, "dist/cli/main.js");

export type Part = "gateway" | "relay";
export const parts: readonly Part[] = ["gateway", "relay"];
export const valueSets = ["minimal", "full", "bare"] as const;

/** Oldest that the charts name, and a current one. */
const kubernetesVersions = ["1.30.0", "1.37.0"];

export const chartPath = (part: Part): string => join(root, "helm", `postern-${part}`);
export const valuesPath = (part: Part, set: string): string => join(chartPath(part), "ci", `${set}-values.yaml`);

/** As much of a manifest as the checks look at. */
export interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: Readonly<Record<string, unknown>>;
}

export interface Rendered {
  readonly text: string;
  readonly manifests: readonly Manifest[];
}

export interface HelmValues {
  /** Files, the later wins. */
  readonly files?: readonly string[];
  /** `--set-json KEY=JSON`. */
  readonly set?: Readonly<Record<string, unknown>>;
}

function valueArguments(values: HelmValues): string[] {
  const files = (values.files ?? []).flatMap((file) => ["-f", file]);
  const set = Object.entries(values.set ?? {}).flatMap(([key, value]) => [
    "--set-json",
    `${key}=${JSON.stringify(value)}`,
  ]);
  return [...files, ...set];
}

/** Throws with helm's own words when the values or the templates are refused. */
export function renderChart(part: Part, values: HelmValues): Rendered {
  const args = ["template", "demo", chartPath(part), "--namespace", "edge", "--kube-version", "1.34.0"];
  const text = execFileSync(helm, [...args, ...valueArguments(values)], { encoding: "utf8", stdio: "pipe" });
  // YAML 1.1, as Kubernetes reads it: 0440 is a file mode there.
  const documents = parseAllDocuments(text, { version: "1.1" });
  const manifests = documents.map((document) => document.toJS() as Manifest | null).filter((one) => one !== null);
  return { text, manifests };
}

export function lintChart(part: Part, values: HelmValues): void {
  const args = ["lint", "--strict", "--kube-version", "1.34.0", chartPath(part), ...valueArguments(values)];
  execFileSync(helm, args, { encoding: "utf8", stdio: "pipe" });
}

/** Against the API's own schemas, unknown fields refused. Resolves with the number of resources that were looked at. */
export async function validateManifests(text: string): Promise<number> {
  const dir = mkdtempSync(join(tmpdir(), "postern-manifests-"));
  try {
    const file = join(dir, "manifests.yaml");
    writeFileSync(file, text);
    let seen = 0;
    for (const version of kubernetesVersions) {
      const output = await run(python, ["-m", "kubernetes_validate", "-k", version, "--strict", file]);
      seen += output.split("\n").filter((line) => line.includes(" passed for resource ")).length;
    }
    return seen / kubernetesVersions.length;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function run(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(command, args, { encoding: "utf8" }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout + stderr);
      else reject(new Error(`${error.message}\n${stdout}`));
    });
  });
}

export function only(rendered: Rendered, kind: string): Manifest {
  const found = rendered.manifests.filter((manifest) => manifest.kind === kind);
  const [first] = found;
  if (first === undefined || found.length > 1) throw new Error(`${found.length} manifests of kind ${kind}, not one`);
  return first;
}

/** Writes files as the kubelet lays a projected volume: every name is a link into a folder that can be exchanged at once. */
export function writeProjectedVolume(dir: string, files: Readonly<Record<string, string>>, mode: number): void {
  const version = "..2026_01_01_00_00_00.1";
  mkdirSync(join(dir, version), { recursive: true });
  symlinkSync(version, join(dir, "..data"));
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(dir, version, name), content, { mode });
    symlinkSync(`..data/${name}`, join(dir, name));
  }
}
