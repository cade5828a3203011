import { createServer } from "node:http";

/**
 * Loaded into a relay or gateway by `--import`, with `--expose-gc`: answers on loopback what the process holds after a
 * full collection. Only for measuring.
 */
const port = Number(process.env.MEMORY_PROBE_PORT);

const server = createServer((_req, res) => {
  globalThis.gc();
  // What a collection frees by finalizers is counted after the next one.
  setImmediate(() => {
    globalThis.gc();
    const { rss, heapUsed, external } = process.memoryUsage();
    res.end(JSON.stringify({ rss, held: heapUsed + external }));
  });
});
server.listen(port, "127.0.0.1");
server.unref();
