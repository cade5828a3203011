/**
 * Metrics in the text format of Prometheus. Parts count in plain fields of their own, because a call must not pay for being
 * counted; when somebody scrapes, what they counted is handed over as families and written down here.
 *
 * A label holds a name out of the configuration or one of our own codes, nothing that an agent, a server or a relay chose:
 * their number would be the sender's to decide, and so might be what stands in them.
 */
import { type Metric, Registry } from "prom-client";

export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels?: Labels;
  readonly value: number;
}

export interface MetricFamily {
  /** `postern_<room>_<noun>_<unit|total>`. */
  readonly name: string;
  readonly help: string;
  readonly kind: "counter" | "gauge";
  readonly samples: readonly Sample[];
}

export interface HistogramFamily {
  readonly name: string;
  readonly help: string;
  readonly kind: "histogram";
  readonly samples: readonly { readonly labels?: Labels; readonly histogram: Histogram }[];
}

export type Family = MetricFamily | HistogramFamily;

/** Seconds; calls of MCP servers take from milliseconds to the five minutes of `timeouts.firstByte`. */
const boundsSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/** Durations by size class. Adding one is a short walk over numbers: no label is looked up, nothing is made. */
export class Histogram {
  readonly #boundsMs: readonly number[] = boundsSeconds.map((seconds) => seconds * 1000);
  /** One for each bound, and one for what is above the last. */
  readonly #counts = new Array<number>(boundsSeconds.length + 1).fill(0);
  #sumMs = 0;

  observe(ms: number): void {
    const bounds = this.#boundsMs;
    let at = 0;
    while (at < bounds.length && ms > (bounds[at] ?? 0)) at += 1;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#sumMs += ms;
  }

  /** Counts up to and including each bound, in seconds; the last bound is `+Inf`. */
  cumulative(): { readonly le: string; readonly count: number }[] {
    let count = 0;
    return this.#counts.map((own, i) => {
      count += own;
      return { le: i < boundsSeconds.length ? String(boundsSeconds[i]) : "+Inf", count };
    });
  }

  get count(): number {
    return this.#counts.reduce((sum, own) => sum + own, 0);
  }

  get sumSeconds(): number {
    return this.#sumMs / 1000;
  }
}

interface Line {
  readonly metricName?: string;
  readonly labels: Labels;
  readonly value: number;
}

/** The page that `/metrics` answers with. Throws when two families have one name. */
export async function renderMetrics(
  families: readonly Family[],
): Promise<{ readonly contentType: string; readonly text: string }> {
  const registry = new Registry();
  for (const family of families) {
    const { name, help, kind: type } = family;
    const whole = { name, help, type, values: linesOf(family) };
    // All that the registry asks of a metric is `get`; its own kinds keep values that are counted up, ours are read off.
    registry.registerMetric({ name, get: () => Promise.resolve(whole) } as unknown as Metric);
  }
  return { contentType: registry.contentType, text: await registry.metrics() };
}

function linesOf(family: Family): Line[] {
  if (family.kind !== "histogram") return family.samples.map(({ labels = {}, value }) => ({ labels, value }));
  const { name } = family;
  return family.samples.flatMap(({ labels = {}, histogram }) => [
    ...histogram.cumulative().map(({ le, count }) => ({
      metricName: `${name}_bucket`,
      labels: { ...labels, le },
      value: count,
    })),
    { metricName: `${name}_sum`, labels, value: histogram.sumSeconds },
    { metricName: `${name}_count`, labels, value: histogram.count },
  ]);
}

/** A family of one sample without labels. */
export function single(kind: "counter" | "gauge", name: string, help: string, value: number): MetricFamily {
  return { kind, name, help, samples: [{ value }] };
}

/** What every process tells of itself, under the names that dashboards know. */
export function processMetrics(version: string, part: "gateway" | "relay"): MetricFamily[] {
  const { rss, heapUsed } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return [
    {
      kind: "gauge",
      name: "postern_build_info",
      help: "Always 1; the labels say which program this is.",
      samples: [{ labels: { version, part }, value: 1 }],
    },
    single("gauge", "process_uptime_seconds", "Since the process started.", process.uptime()),
    single("gauge", "process_resident_memory_bytes", "Resident memory.", rss),
    single("gauge", "nodejs_heap_used_bytes", "JavaScript heap in use.", heapUsed),
    single("counter", "process_cpu_seconds_total", "User and system time.", (user + system) / 1e6),
  ];
}
