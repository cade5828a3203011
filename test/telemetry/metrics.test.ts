import { describe, expect, it } from "vitest";
import { Histogram, renderMetrics, single } from "../../src/telemetry/index.ts";

describe("metrics", () => {
  it("are written as Prometheus reads them, label values escaped", async () => {
    const { contentType, text } = await renderMetrics([
      single("counter", "postern_x_total", "How many.", 3),
      {
        kind: "gauge",
        name: "postern_y",
        help: "Two.",
        samples: [
          { labels: { server: "a" }, value: 1 },
          { labels: { server: 'b"\n\\' }, value: 0.5 },
        ],
      },
    ]);
    expect(contentType).toBe("text/plain; version=0.0.4; charset=utf-8");
    expect(text.split("\n").filter((line) => line !== "")).toEqual([
      "# HELP postern_x_total How many.",
      "# TYPE postern_x_total counter",
      "postern_x_total 3",
      "# HELP postern_y Two.",
      "# TYPE postern_y gauge",
      'postern_y{server="a"} 1',
      'postern_y{server="b\\"\\n\\\\"} 0.5',
    ]);
  });

  it("hold a histogram whose buckets add up", async () => {
    const histogram = new Histogram();
    for (const ms of [1, 5, 5.1, 70, 400_000]) histogram.observe(ms);
    const name = "postern_d_seconds";
    const { text } = await renderMetrics([
      { kind: "histogram", name, help: "D.", samples: [{ labels: { server: "a" }, histogram }] },
    ]);
    const lines = text.split("\n");
    expect(lines).toContain('postern_d_seconds_bucket{server="a",le="0.005"} 2');
    expect(lines).toContain('postern_d_seconds_bucket{server="a",le="0.01"} 3');
    expect(lines).toContain('postern_d_seconds_bucket{server="a",le="0.1"} 4');
    expect(lines).toContain('postern_d_seconds_bucket{server="a",le="300"} 4');
    expect(lines).toContain('postern_d_seconds_bucket{server="a",le="+Inf"} 5');
    expect(lines).toContain('postern_d_seconds_count{server="a"} 5');
    expect(lines).toContain('postern_d_seconds_sum{server="a"} 400.0811');
  });

  it("do not take one name twice", async () => {
    const one = single("gauge", "postern_x", "X.", 1);
    await expect(renderMetrics([one, { ...one }])).rejects.toThrow(/already been registered/);
  });
});
