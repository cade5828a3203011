import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Pool } from "undici";

/**
 * One plain forwarding hop, as a process: what anybody would write who needs no tunnel, no policy and no credentials.
 * TARGET is the origin that it forwards to. Prints its port.
 */
const pool = new Pool(process.env["TARGET"] ?? "", { connections: 64, pipelining: 1 });
const hopByHop = new Set(["connection", "keep-alive", "transfer-encoding", "host", "content-length"]);

const server = createServer({ keepAliveTimeout: 120_000 }, (req, res) => {
  const headers = Object.fromEntries(Object.entries(req.headers).filter(([name]) => !hopByHop.has(name)));
  if (req.headers["content-length"] !== undefined) headers["content-length"] = req.headers["content-length"];
  pool
    .request({ path: req.url ?? "/", method: "POST", headers, body: req })
    .then((answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.body.pipe(res);
      answer.body.on("error", () => res.destroy());
      res.on("close", () => answer.body.destroy());
    })
    .catch(() => {
      if (res.headersSent) res.destroy();
      else res.writeHead(502).end();
    });
});
server.listen(0, "127.0.0.1", () => {
  console.log((server.address() as AddressInfo).port);
});
