import { describe, expect, it } from "vitest";
import { type RecordedOptions, Recorder } from "./answer-recorder.ts";

const ok = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}';
const tools = (id: string): string => `{"jsonrpc":"2.0","id":${id},"result":{"tools":[{"name":"b"},{"name":"a"}]}}`;
const toolsOfA = (id: string): string => `{"jsonrpc":"2.0","id":${id},"result":{"tools":[{"name":"a"}]}}`;
const progress = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":0,"progress":1}}';
const small = { holdBytes: 64, listBytes: 512 };
const get: RecordedOptions = { method: "GET", idText: null };
const failed = (id: string, code: number): string =>
  `event: message\ndata: {"jsonrpc":"2.0","id":${id},"error":{"code":${code}}}\n\n`;

function event(data: string, lines = "event: message\n"): string {
  return `${lines}data: ${data}\n\n`;
}

function open(options: RecordedOptions = {}): Recorder {
  return new Recorder({ isEventStream: true, ...options });
}

/** `body` whole, cut in two at every byte, and byte by byte. */
function* cuts(body: Buffer): Generator<number[]> {
  for (let at = 0; at <= body.length; at += 1) yield [at];
  yield Array(body.length).fill(1);
}

describe("an event stream", () => {
  it("C05 sends the head at once and every event before the next exists", () => {
    const recorder = open();
    expect(recorder.calls).toEqual(["head"]);
    const first = event(progress);
    recorder.push(first);
    expect(recorder.text).toBe(first);
    recorder.push("event: message\ndata: ");
    expect(recorder.text).toBe(first);
    recorder.push(`${ok}\n\n`);
    expect(recorder.text).toBe(first + event(ok));
    recorder.filter.end();
    expect(recorder.outcome).toEqual(["head", "finish"]);
  });

  it("emits an event that came whole as the very bytes that came", () => {
    const recorder = open();
    const chunk = Buffer.from(event(ok));
    recorder.filter.push(chunk);
    expect(recorder.emitted).toHaveLength(1);
    expect(recorder.emitted[0]?.buffer).toBe(chunk.buffer);
  });

  it.each(["\n", "\r", "\r\n"])("C13 C14 keeps its bytes with %j, however it is cut", (end) => {
    const text =
      `: hi\n\nid: 0\nretry: 1000\ndata: \n\nevent: ping\ndata: now\n\nx: y\n${event(progress)}id: é\n` +
      'data: {"jsonrpc":"2.0","id":1,\ndata: "result":{"n":9007199254740993,"x":1.0,"t":"漢\u{1F600}\\ud83d\\ude00"}}\n\n: bye\n\n';
    const body = Buffer.from(`\ufeff${text.replaceAll("\n", end)}`);
    for (const sizes of cuts(body)) {
      const recorder = open().run(body, sizes);
      expect(recorder.body.equals(body)).toBe(true);
      expect(recorder.outcome).toEqual(["head", "finish"]);
    }
  });

  it("C13 C19 filters a list event, and only its data, however it is cut", () => {
    const body = Buffer.from(`${event(progress)}: c\nid: 9\n${event(tools("1"))}`);
    for (const sizes of cuts(body)) {
      const recorder = open().run(body, sizes);
      expect(recorder.text).toBe(`${event(progress)}: c\nid: 9\n${event(toolsOfA("1"))}`);
      expect(recorder.outcome).toEqual(["head", "finish"]);
    }
  });

  it("filters a list that is spread over data lines", () => {
    const body = 'data: {"id":1,"result":{"tools":[\r\ndata: {"name":"b"},\r\ndata: {"name":"a"}]}}\r\nid: 3\r\n\r\n';
    expect(open().run(body).text).toBe('data: {"id":1,"result":{"tools":[\r\ndata: {"name":"a"}]}}\r\nid: 3\r\n\r\n');
  });

  it("filters every response on a GET stream by its shape", () => {
    const recorder = open(get).run(event(tools("7")) + event(ok));
    expect(recorder.text).toBe(event(toolsOfA("7")) + event(ok));
    expect(recorder.outcome).toEqual(["head", "finish"]);
  });

  it("C12 filters a response with a foreign id on a POST stream, and does not count it", () => {
    const recorder = open().run(event(tools("2")));
    expect(recorder.text).toBe(event(toolsOfA("2")) + failed("1", -33021));
    expect(recorder.outcome).toEqual(["head", "fail -33021 end"]);
  });

  it("filters a list whatever the type of the event says", () => {
    expect(open(get).run(event(tools("7"), "event: other\n")).text).toBe(event(toolsOfA("7"), "event: other\n"));
  });

  describe("requests of the server", () => {
    const ask = (method: string, id = '"s1"'): string =>
      `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":{}}`;

    it.each([
      ["sampling/createMessage", "sampling"],
      ["elicitation/create", "elicitation"],
      ["roots/list", "roots"],
    ] as const)("C09 passes %s where it is admitted, with its id as it is", (method, kind) => {
      for (const options of [get, {}]) {
        const recorder = open({ ...options, asks: [kind] }).push(event(ask(method)));
        expect(recorder.text).toBe(event(ask(method)));
        expect(recorder.calls).toEqual(["head", `ask "s1" ${method}`, "emit"]);
      }
    });

    it.each(["sampling/createMessage", "elicitation/create", "roots/list", "tools/call", "Ping", "tasks/get"])(
      "C09 drops %s where it is not, and says so to the server",
      (method) => {
        const recorder = open(get).run(event(ask(method, "0")) + event(progress));
        expect(recorder.text).toBe(event(progress));
        expect(recorder.outcome).toEqual(["head", `refused 0 ${method}`, "finish"]);
      },
    );

    it("C09 always passes ping", () => {
      const recorder = open().run(event(ask("ping", "1")) + event(ok));
      expect(recorder.outcome).toEqual(["head", "ask 1 ping", "finish"]);
      expect(recorder.text).toBe(event(ask("ping", "1")) + event(ok));
    });

    it("C07 keeps the cursor of a dropped event", () => {
      const body = `id: 4\nretry: 10\n${event(ask("roots/list"))}`;
      expect(open(get).run(body).text).toBe("id: 4\nretry: 10\ndata:\n\n");
    });

    it("drops one with a null id and answers nobody", () => {
      expect(open(get).run(event(ask("ping", "null"))).calls).toEqual(["head", "drop", "finish"]);
    });
  });

  it.each([
    "notifications/progress",
    "notifications/message",
    "notifications/cancelled",
    "notifications/tools/list_changed",
    "notifications/elicitation/complete",
    "notifications/subscriptions/acknowledged",
    "notifications/of/tomorrow",
  ])("C10 passes %s", (method) => {
    const body = event(`{"method":"${method}","params":{"progressToken":"7","uri":"b"}}`);
    expect(open(get).run(body).text).toBe(body);
  });

  it("passes updates of admitted resources only", () => {
    const update = (params: string): string => event(`{"method":"notifications/resources/updated","params":${params}}`);
    const passed = update('{"uri":"a"}');
    const denied = [
      update('{"uri":"b"}'),
      update('{"uri":"a","uri":"b"}'),
      update('{"uri":"b","uri":"a"}'),
      update('{"uri":"a","Uri":"b"}'),
      update('{"uri":["a"]}'),
      update("{}"),
    ];
    const recorder = open(get).run(denied.join("") + passed);
    expect(recorder.text).toBe(passed);
    expect(recorder.calls.filter((call) => call === "drop")).toHaveLength(denied.length);
  });

  it("drops task notifications", () => {
    expect(open(get).run(event('{"method":"notifications/tasks/status","params":{}}')).text).toBe("");
  });

  describe("that cannot be judged", () => {
    const doubtful: [string, string][] = [
      ["C15 an array", `[${tools("1")}]`],
      ["two results", '{"id":1,"result":{},"result":{"tools":[{"name":"b"}]}}'],
      ["a list under another case", '{"id":1,"result":{"TOOLS":[{"name":"b"}]}}'],
      ["no JSON", "hello"],
      ["half a message", ok.slice(0, -3)],
      ["neither request nor response", '{"id":1}'],
      ["request and response in one", '{"id":1,"method":"ping","result":{}}'],
      ["a list that is no array", '{"id":1,"result":{"tools":{"name":"b"}}}'],
    ];

    it.each(doubtful)("fails the request with %s", (_what, data) => {
      const recorder = open().run(event(progress) + event(data) + event(ok));
      expect(recorder.text).toBe(event(progress) + failed("1", -33021));
      expect(recorder.outcome).toEqual(["head", "fail -33021 end"]);
    });

    it.each(doubtful)("drops %s on a GET stream, which goes on", (_what, data) => {
      const recorder = open(get).run(`id: 1\n${event(data)}${event(progress)}`);
      expect(recorder.text).toBe(`id: 1\ndata:\n\n${event(progress)}`);
      expect(recorder.outcome).toEqual(["head", "drop", "finish"]);
    });

    it("passes data of other types that no client can take for a message", () => {
      const body = event("{}", "event: ping\n") + event("2026-01-01", "event: ping\n") + event("", "event: ping\n");
      expect(open(get).run(body).text).toBe(body);
      expect(open(get).run(event(`[${tools("1")}]`, "event: other\n")).text).toBe("");
      expect(open(get).run(event('{"id":1,"result":{"Tools":[]}}', "event: other\n")).text).toBe("");
      expect(open(get).run(event('{"Result":{"tools":[]}}', "event: other\n")).text).toBe("");
      expect(open(get).run(event('{"a":1', "event: other\n")).text).toBe("");
    });
  });

  it("denies a result that asks for what the policy does not admit", () => {
    const data =
      '{"id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}}';
    const options: RecordedOptions = { era: "modern" };
    const recorder = open(options).run(event(data));
    expect(recorder.text).toBe(failed("1", -33001));
    expect(recorder.outcome).toEqual(["head", "finish"]);
    expect(open({ ...options, asks: ["elicitation"] }).run(event(data)).text).toBe(event(data));
  });

  it("denies a task that stands in for a result", () => {
    const data = '{"id":1,"result":{"resultType":"task","task":{"taskId":"t-1"}}}';
    const recorder = open({ era: "modern" }).run(event(data));
    expect(recorder.text).toBe(failed("1", -33001));
    expect(recorder.outcome).toEqual(["head", "finish"]);
  });

  describe("that ends", () => {
    it("C02 without the response is a failure", () => {
      for (const body of ["", ": c\n\n", event(progress), `event: message\ndata: ${ok}\n`, `data: ${ok}`]) {
        const recorder = open().run(body);
        expect(recorder.text.endsWith(failed("1", -33021))).toBe(true);
        expect(recorder.text).not.toContain("result");
        expect(recorder.outcome).toEqual(["head", "fail -33021 end"]);
      }
    });

    it("without the response is no failure where the client resumes, or waits for nothing", () => {
      const priming = "id: 1\nretry: 5\ndata:\n\n";
      expect(open().run(priming).outcome).toEqual(["head", "finish"]);
      expect(open({ era: "modern" }).run(priming).outcome).toEqual(["head", "fail -33021 end"]);
      expect(open({ idText: null }).run("").outcome).toEqual(["head", "finish"]);
      expect(open(get).run(event(progress)).outcome).toEqual(["head", "finish"]);
      expect(open({ status: 400 }).run("").outcome).toEqual(["head", "finish"]);
    });

    it("passes what comes after the response", () => {
      const body = event(ok) + event(progress) + event(ok);
      expect(open().run(body).text).toBe(body);
    });
  });

  describe("that is lost", () => {
    it("becomes an error event at a boundary", () => {
      const recorder = open().push(event(progress)).push('data: {"half');
      recorder.filter.fail(-33022, "late");
      recorder.filter.push(Buffer.from(event(ok)));
      recorder.filter.end();
      expect(recorder.text).toBe(event(progress) + failed("1", -33022));
      expect(recorder.outcome).toEqual(["head", "fail -33022 end"]);
    });

    it("is only closed where an event id was carried, or nothing is waited for", () => {
      for (const options of [{}, get]) {
        const recorder = open(options).push(`id: 1\n${event(progress)}data: x`);
        recorder.filter.fail(-33021, "died");
        expect(recorder.text).toBe(`id: 1\n${event(progress)}`);
        expect(recorder.outcome).toEqual(["head", "fail -33021 close"]);
      }
      const dropped = open().push(`id: 1\n${event('{"id":5,"method":"roots/list"}')}`);
      dropped.filter.fail(-33021, "died");
      expect(dropped.outcome).toEqual(["head", "refused 5 roots/list", "fail -33021 close"]);
      const answered = open().push(event(ok));
      answered.filter.fail(-33021, "died");
      expect(answered.outcome).toEqual(["head", "fail -33021 close"]);
      expect(answered.text).toBe(event(ok));
    });

    it("gets its error event in the modern era in spite of ids", () => {
      const recorder = open({ era: "modern" }).push(`id: 1\n${event(progress)}`);
      recorder.filter.fail(-33021, "died");
      expect(recorder.outcome).toEqual(["head", "fail -33021 end"]);
    });
  });

  describe("with an event over the size that is held", () => {
    const long = "x".repeat(200);
    const big = event(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"${long}"}]}}`);
    const tens = (body: string): number[] => Array(Math.ceil(body.length / 10)).fill(10);

    it("streams it through", () => {
      const recorder = open({ limits: small });
      recorder.push(big.slice(0, 150), tens(big.slice(0, 150)));
      expect(recorder.text).toBe(big.slice(0, 150));
      expect(recorder.filter.isAtBoundary).toBe(false);
      recorder.push(big.slice(150));
      expect(recorder.filter.isAtBoundary).toBe(true);
      recorder.filter.end();
      expect(recorder.text).toBe(big);
      expect(recorder.outcome).toEqual(["head", "finish"]);
    });

    it("cuts it off before a list that comes late, so that no client takes it for a message", () => {
      const body = event(`{"jsonrpc":"2.0","id":1,"result":{"content":["${long}"],"tools":[{"name":"b"}]}}`);
      const recorder = open({ limits: small }).run(body, tens(body));
      expect(recorder.text).not.toContain("tools");
      const [sent = "", rest] = recorder.text.split("\nevent: truncated\n\n");
      expect(body.startsWith(sent)).toBe(true);
      expect(rest).toBe(failed("1", -33023));
      expect(recorder.outcome).toEqual(["head", "fail -33023 end"]);
    });

    it.each([
      ["a batch behind it", `{"id":1,"result":"${long}"}[]`],
      ["a second result", `{"id":1,"result":"${long}","result":{"tools":[]}}`],
      ["no end", `{"id":1,"result":"${long}"`],
      ["a request of the server that shows late", `{"params":"${long}","id":1,"method":"roots/list"}`],
    ])("cuts it off at %s", (_what, data) => {
      for (const options of [{}, get]) {
        const recorder = open({ limits: small, ...options }).run(event(data), tens(event(data)));
        const rest = recorder.text.split("\nevent: truncated\n\n")[1];
        expect(rest).toBe(options === get ? "" : failed("1", Number(recorder.failure?.code)));
        expect(recorder.failure?.ending).toBe(options === get ? "close" : "end");
        expect(recorder.filter.isAtBoundary).toBe(false);
      }
    });

    it("waits for the end of a list or a request it may have to drop, up to the limit", () => {
      const list = event(`{"id":1,"result":{"tools":[${Array(20).fill('{"name":"b"}').join(",")}]}}`);
      expect(open({ limits: small }).run(list, tens(list)).text).toBe(event('{"id":1,"result":{"tools":[]}}'));
      const ask = event(`{"id":5,"method":"sampling/createMessage","params":"${long}"}`);
      const recorder = open({ limits: small, ...get }).run(ask, tens(ask));
      expect(recorder.text).toBe("");
      expect(recorder.outcome).toEqual(["head", "refused 5 sampling/createMessage", "finish"]);
      const endless = event(`{"id":1,"result":{"tools":["${"x".repeat(600)}"]}}`);
      expect(open({ limits: small }).run(endless, tens(endless)).text).toBe(failed("1", -33023));
    });

    it("waits for the end of an update, wherever its uri stands", () => {
      const update = (uri: string): string =>
        event(`{"method":"notifications/resources/updated","params":{"x":"${long}","uri":"${uri}"}}`);
      expect(open({ limits: small, ...get }).run(update("a"), tens(update("a"))).text).toBe(update("a"));
      const recorder = open({ limits: small, ...get }).run(update("b"), tens(update("b")));
      expect(recorder.calls).toEqual(["head", "drop", "finish"]);
    });

    it("streams a request that is admitted, and registers it before its last byte", () => {
      const ask = event(`{"id":5,"method":"sampling/createMessage","params":"${long}"}`);
      const recorder = open({ limits: small, ...get, asks: ["sampling"] }).run(ask, tens(ask));
      expect(recorder.text).toBe(ask);
      expect(recorder.calls.slice(-3)).toEqual(["ask 5 sampling/createMessage", "emit", "finish"]);
    });

    it("ends a lost one so that the error event stands alone", () => {
      const recorder = open({ limits: small }).push(big.slice(0, 150));
      recorder.filter.fail(-33021, "died");
      expect(recorder.text).toBe(`${big.slice(0, 150)}\nevent: truncated\n\n${failed("1", -33021)}`);
      const ended = open({ limits: small }).run(big.slice(0, 150));
      expect(ended.text).toBe(recorder.text);
      expect(ended.outcome).toEqual(["head", "fail -33021 end"]);
    });

    it("C08 becomes an error event where an empty id took the last one back, until there is another", () => {
      const given = `id: 1\n${event(progress)}`;
      for (const empty of ["id:", "id: ", "id"]) {
        for (const events of [`${empty}\n${event(progress)}`, `${given}${empty}\n\n`]) {
          const recorder = open().push(events);
          recorder.filter.fail(-33021, "died");
          expect(recorder.text).toBe(events + failed("1", -33021));
          expect(open().run(events).outcome).toEqual(["head", "fail -33021 end"]);
        }
        const again = open().push(`${empty}\n\n${given}`);
        again.filter.fail(-33021, "died");
        expect(again.outcome).toEqual(["head", "fail -33021 close"]);
      }
    });

    it("leaves a lost one without its empty line where the client resumes", () => {
      const recorder = open({ limits: small }).push(`id: 1\n${event(progress)}id: 2\n${big.slice(0, 150)}`);
      recorder.filter.fail(-33021, "died");
      expect(recorder.text.endsWith(big.slice(0, 150))).toBe(true);
      expect(recorder.outcome).toEqual(["head", "fail -33021 close"]);
    });

    it("passes 20 MiB in one event and holds little of it", () => {
      const recorder = open();
      const piece = Buffer.alloc(64 * 1024, "x");
      let pushed = 0;
      let emitted = 0;
      const push = (bytes: Buffer): void => {
        recorder.filter.push(bytes);
        pushed += bytes.length;
        for (const part of recorder.emitted.splice(0)) emitted += part.length;
        expect(pushed - emitted).toBeLessThanOrEqual(1024 * 1024 + piece.length);
      };
      push(Buffer.from('data: {"jsonrpc":"2.0","id":1,"result":{"content":"'));
      for (let i = 0; i < 320; i += 1) push(piece);
      push(Buffer.from('"}}\n\n'));
      recorder.filter.end();
      expect(recorder.outcome).toEqual(["head", "finish"]);
      expect(emitted).toBe(pushed);
    });
  });

  it("C09 lets nothing out behind what clients cut off as a byte order mark", () => {
    const ask = '{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}';
    // A dropped event makes the next one the client's first.
    const body = `data: ${ask}\n\n\u00ef\u00bb\u00bfdata: ${ask}\n\n`;
    expect(open(get).run(body + event(progress)).text).toBe(event(progress));
    expect(open(get).run(`\ufeff\ufeff${body}${event(progress)}`).text).toBe(`\ufeff${event(progress)}`);
    const due = open().run(body + event(ok));
    expect([due.text, due.outcome]).toEqual([failed("1", -33021), expect.arrayContaining(["fail -33021 end"])]);
  });

  it.each(["sampling/createMessage", "tools/call", "x"])("C09 drops a notification named %s", (method) => {
    const recorder = open({ asks: ["sampling"] }).run(event(`{"jsonrpc":"2.0","method":"${method}"}`) + event(ok));
    expect(recorder.text).toBe(event(ok));
    expect(recorder.outcome).toEqual(["head", "drop", "finish"]);
  });

  it("C04 knows where bytes of others may stand", () => {
    const recorder = open();
    expect(recorder.filter.isAtBoundary).toBe(true);
    recorder.push('data: {"id":1,');
    expect(recorder.filter.isAtBoundary).toBe(true);
    recorder.push('"result":{}}\n\n');
    expect(recorder.filter.isAtBoundary).toBe(true);
  });
});
