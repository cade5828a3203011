import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/**
 * The MCP server of the benchmark, as a process: plain node:http with answers made beforehand, so that what is measured
 * is the way to it. The tool `get_small` answers 1 KB of JSON, `get_stream` an event at once and the result a little
 * later, `get_big` a result of 100 MiB; `Mcp-Name` says which, whatever the path. Prints its port.
 */
const smallBytes = 1_024;
const bigBytes = 100 * 1_024 * 1_024;
const chunkBytes = 64 * 1_024;
const resultAfterMs = 5;

const head = '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"';
const tail = '"}]}}';
const fill = (bytes: number): string => "x".repeat(bytes - head.length - tail.length);

const small = Buffer.from(head + fill(smallBytes) + tail);
const progress = Buffer.from(
  'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n\n',
);
const result = Buffer.from(`data: ${head}${fill(256)}${tail}\n\n`);
const bigChunk = Buffer.alloc(chunkBytes, "x");

function answerSmall(res: ServerResponse): void {
  res.writeHead(200, ["content-type", "application/json", "content-length", String(small.length)]);
  res.end(small);
}

function answerStream(res: ServerResponse): void {
  res.writeHead(200, ["content-type", "text/event-stream", "cache-control", "no-cache"]);
  res.write(progress);
  setTimeout(() => res.end(result), resultAfterMs);
}

function answerBig(res: ServerResponse): void {
  res.writeHead(200, ["content-type", "application/json", "content-length", String(bigBytes)]);
  res.write(head);
  let left = bigBytes - head.length - tail.length;
  const pump = (): void => {
    while (left > 0) {
      const chunk = left >= chunkBytes ? bigChunk : bigChunk.subarray(0, left);
      left -= chunk.length;
      if (!res.write(chunk)) {
        res.once("drain", pump);
        return;
      }
    }
    res.end(tail);
  };
  pump();
}

const answers: Readonly<Record<string, (res: ServerResponse) => void>> = {
  get_small: answerSmall,
  get_stream: answerStream,
  get_big: answerBig,
};

const server = createServer({ keepAliveTimeout: 120_000 }, (req, res) => {
  req.on("end", () => {
    const answer = answers[String(req.headers["mcp-name"])];
    if (answer === undefined || req.method !== "POST") res.writeHead(404).end();
    else answer(res);
  });
  req.resume();
});
server.listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => {
  console.log((server.address() as AddressInfo).port);
});
