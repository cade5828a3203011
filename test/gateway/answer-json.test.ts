import { describe, expect, it } from "vitest";
import { type RecordedOptions, Recorder } from "./answer-recorder.ts";

const ok = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}';
const list = '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"b"},{"name":"a"}],"nextCursor":"x"}}';
const filtered = '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}],"nextCursor":"x"}}';
const small = { holdBytes: 64, listBytes: 512 };

function run(body: string | Buffer, options: RecordedOptions = {}, sizes: readonly number[] = []): Recorder {
  return new Recorder(options).run(body, sizes);
}

/** `body` whole, cut in two at every byte, and byte by byte. */
function* cuts(body: Buffer): Generator<number[]> {
  for (let at = 0; at <= body.length; at += 1) yield [at];
  yield Array(body.length).fill(1);
}

describe("a JSON answer", () => {
  it("leaves as the very buffer that came", () => {
    const recorder = new Recorder();
    const chunk = Buffer.from(ok);
    recorder.filter.push(chunk);
    expect(recorder.calls).toEqual([]);
    recorder.filter.end();
    expect(recorder.calls).toEqual(["head", "emit", "finish"]);
    expect(recorder.emitted[0]).toBe(chunk);
  });

  it("C13 C14 keeps its bytes, however it is cut", () => {
    const body = Buffer.from(
      `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"id":1915883588174806058,"x":1.0,"y":1e400,"z":-0},"_meta":{"a":{"b":"é漢\u{1F600}e\u0301\\ud83d\\ude00"}},"k":1,"k":2},"extra":9007199254740993}`,
    );
    for (const sizes of cuts(body)) {
      const recorder = run(body, {}, sizes);
      expect(recorder.body.equals(body)).toBe(true);
      expect(recorder.outcome).toEqual(["head", "finish"]);
    }
  });

  it("C13 C14 C19 shows only what the policy shows, however it is cut", () => {
    for (const sizes of cuts(Buffer.from(list))) expect(run(list, {}, sizes).text).toBe(filtered);
    expect(run(list, { shown: ["a", "b"] }).text).toBe(list);
  });

  it("passes a large list that needs no edit as it is", () => {
    const body = `{"id":1,"result":{"tools":[${Array(8_000).fill('{"name":"a"}').join(",")}]}}`;
    const recorder = run(body, {}, [50_000, 20_000]);
    expect(recorder.text).toBe(body);
    expect(recorder.outcome).toEqual(["head", "finish"]);
  });

  it.each<[string, RecordedOptions]>([
    ["of an escaped key", {}],
    ["on a GET", { method: "GET", idText: null }],
    ["to a notification", { idText: null }],
    ["in an error status", { status: 400 }],
    ["with the id after the result", {}],
  ])("filters a list %s", (_what, options) => {
    const body = '{"result":{"\\u0074ools":[{"name":"b"},{"name":"a"}]},"id":1}';
    expect(run(body, options).text).toBe('{"result":{"\\u0074ools":[{"name":"a"}]},"id":1}');
  });

  it("C19 yields exactly the shown tools over all pages", () => {
    const page = (from: number, to: number, cursor: string | undefined): string => {
      const tools = Array.from({ length: to - from + 1 }, (_, i) => `{"name":"t${from + i}","n":9007199254740993}`);
      const next = cursor === undefined ? "" : `,"nextCursor":"${cursor}"`;
      return `{"jsonrpc":"2.0","id":1,"result":{"tools":[${tools.join(",")}]${next}}}`;
    };
    const pages = [page(1, 50, "50"), page(51, 100, "100"), page(101, 120, undefined)];
    const texts = pages.map((body) => run(body, { shown: ["t3", "t75", "t119"] }).text);
    const results = texts.map((text) => JSON.parse(text).result);
    expect(results.flatMap(({ tools }) => tools.map((tool: { name: string }) => tool.name))).toEqual([
      "t3",
      "t75",
      "t119",
    ]);
    expect(results.map(({ nextCursor }) => nextCursor)).toEqual(["50", "100", undefined]);
    expect(texts[0]).toContain("9007199254740993");
    const none = JSON.parse(run(pages[0] ?? "", { shown: [] }).text).result;
    expect(none).toEqual({ tools: [], nextCursor: "50" });
  });

  it.each([
    ["C15 a batch", `[${ok}]`],
    ["C15 a batch after blanks", ` \n[${ok}]`],
    ["C15 an empty batch", "[]"],
    ["a mark in front", `\ufeff${ok}`],
    ["no JSON", "<html>"],
    ["half a response", ok.slice(0, -1)],
    ["something after the response", `${ok}{}`],
    ["two results", '{"id":1,"result":{},"result":{"tools":[{"name":"b"}]}}'],
    ["two ids", '{"id":1,"id":2,"result":{}}'],
    ["two lists", '{"id":1,"result":{"tools":[],"tools":[{"name":"b"}]}}'],
    ["a list under another case", '{"id":1,"result":{"Tools":[{"name":"b"}]}}'],
    ["a list that is no array", '{"id":1,"result":{"tools":{"name":"b"}}}'],
    ["C02 the response to another request", '{"id":2,"result":{}}'],
    ["C02 a result with a null id", '{"id":null,"result":{}}'],
    ["a result with a null id beside an error", '{"id":null,"result":{},"error":{"code":1}}'],
    ["C09 a string id for a number", '{"id":"1","result":{}}'],
    ["C02 no response at all", '{"ok":true}'],
    ["C02 a request instead", '{"id":1,"method":"ping"}'],
    ["request and response in one", '{"id":1,"method":"ping","result":{}}'],
    ["C02 nothing", ""],
  ])("does not pass %s", (_what, body) => {
    const recorder = run(body);
    expect(recorder.calls).toEqual(["fail -33021 http"]);
    const cut = run(body, {}, Array(Buffer.byteLength(body)).fill(1));
    expect(cut.calls).toEqual(["fail -33021 http"]);
  });

  it.each<[string, string, RecordedOptions]>([
    ["an error of the request", '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}', {}],
    ["C02 an error with a null id", '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}', {}],
    ["an id written anew", '{"id":"a","result":{}}', { idText: '"\\u0061"' }],
    ["a result with a list inside", '{"id":1,"result":{"x":{"tools":[{"name":"b"}]}}}', {}],
    ["C02 nothing to a notification", "", { idText: null, status: 202 }],
    ["C09 200 to a posted response", '{"ok":true}', { idText: null }],
    ["nothing to a DELETE", "", { method: "DELETE", idText: null }],
    ["C22 nothing with 405", "", { method: "GET", idText: null, status: 405 }],
    ["C01 nothing with 404", "", { status: 404 }],
    ["an error status with a JSON body of its own", '{"error":"invalid_token"}', { status: 403 }],
    [
      "an error status with another id",
      '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32000}}',
      { status: 400 },
    ],
  ])("passes %s", (_what, body, options) => {
    const recorder = run(body, options);
    expect(recorder.text).toBe(body);
    expect(recorder.outcome).toEqual(["head", "finish"]);
  });

  it("C15 says what was wrong, for the log", () => {
    expect(run(`[${ok}]`).failure?.reason).toBe("a batch");
    expect(run("{").failure?.reason).toBe("no valid JSON");
  });

  it("C02 does not take 202 for the answer to a request", () => {
    expect(run("", { status: 202 }).calls).toEqual(["fail -33021 http"]);
  });

  it("denies a result that asks for what the policy does not admit", () => {
    const body =
      '{"id":"x","result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"sampling/createMessage"}}}}';
    const options: RecordedOptions = { idText: '"x"', era: "modern" };
    const denied = run(body, { ...options, asks: ["roots"] });
    expect(denied.outcome).toEqual(["head", "finish"]);
    expect(denied.text).toBe('{"jsonrpc":"2.0","id":"x","error":{"code":-33001}}');
    expect(run(body, { ...options, asks: ["roots", "sampling"] }).text).toBe(body);
    const unknown = body.replace("roots/list", "other/ask");
    expect(run(unknown, { ...options, asks: ["roots", "sampling", "elicitation"] }).text).toContain("-33001");
  });

  it("denies a task that stands in for a result", () => {
    const body = '{"id":"x","result":{"resultType":"task","task":{"taskId":"t-1","status":"working"}}}';
    const denied = run(body, { idText: '"x"', era: "modern" });
    expect(denied.outcome).toEqual(["head", "finish"]);
    expect(denied.text).toBe('{"jsonrpc":"2.0","id":"x","error":{"code":-33001}}');
    const complete = body.replace('"task"', '"complete"');
    expect(run(complete, { idText: '"x"', era: "modern" }).text).toBe(complete);
  });

  it("lets no task through that shows itself after a part has left", () => {
    const body = `{"id":1,"result":{"a":"${"x".repeat(200)}","resultType":"task"}}`;
    const recorder = new Recorder({ limits: small, era: "modern" });
    recorder.push(body, Array(Math.ceil(body.length / 10)).fill(10));
    recorder.filter.end();
    expect(recorder.failure?.ending).toBe("cut");
    expect(recorder.text).not.toContain('"}}');
  });

  describe("over the size that is held", () => {
    const big = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"${"x".repeat(200)}"}]}}`;
    const ten = (body: string): number[] => Array(Math.ceil(body.length / 10)).fill(10);

    it("streams through, and ends only after the verdict", () => {
      const recorder = new Recorder({ limits: small });
      recorder.push(big, ten(big));
      expect(recorder.text).toBe(big);
      expect(recorder.calls.at(-1)).toBe("emit");
      recorder.filter.end();
      expect(recorder.outcome).toEqual(["head", "finish"]);
    });

    it.each([
      ["cut short", big.slice(0, -1)],
      ["with another id behind", `${big.replace('"id":1,', "").slice(0, -1)},"id":2}`],
      ["with a second result", `${big.slice(0, -1)},"result":{}}`],
      ["with a batch behind it", `${big}[]`],
    ])("is cut if it is %s", (_what, body) => {
      expect(run(body, { limits: small }, ten(body)).outcome).toEqual(["head", "fail -33021 cut"]);
    });

    it("is cut before a list that comes late", () => {
      const body = `${big.slice(0, -2)},"tools":[{"name":"b"},{"name":"secret"}]}}`;
      const recorder = run(body, { limits: small }, ten(body));
      expect(recorder.outcome).toEqual(["head", "fail -33023 cut"]);
      expect(recorder.text).not.toContain("tools");
    });

    it("waits for the end of a list, up to its limit", () => {
      const tools = (count: number): string => Array(count).fill('{"name":"b"}').join(",");
      const body = (count: number): string => `{"id":1,"result":{"tools":[${tools(count)}]}}`;
      const recorder = run(body(20), { limits: small }, ten(body(20)));
      expect(recorder.text).toBe('{"id":1,"result":{"tools":[]}}');
      expect(run(body(60), { limits: small }, ten(body(60))).calls).toEqual(["fail -33023 http"]);
    });

    it("waits for the end of what asks the agent for something", () => {
      const body = `{"id":1,"result":{"inputRequests":{"a":{"params":"${"x".repeat(200)}","method":"roots/list"}}}}`;
      expect(run(body, { limits: small }, ten(body)).text).toContain("-33001");
      expect(run(body, { limits: small, asks: ["roots"] }, ten(body)).text).toBe(body);
    });

    it("is refused at once when it is no JSON", () => {
      const body = `<html>${"x".repeat(200)}`;
      expect(run(body, { limits: small }, ten(body)).calls).toEqual(["fail -33021 http"]);
    });
  });

  it("fails before the head as an HTTP error, after it by a cut, and says nothing more", () => {
    const before = new Recorder();
    before.filter.push(Buffer.from(ok));
    before.filter.fail(-33022, "late");
    before.filter.push(Buffer.from(ok));
    before.filter.end();
    before.filter.fail(-33021, "again");
    expect(before.calls).toEqual(["fail -33022 http"]);
    const after = new Recorder({ limits: small });
    after.push(`{"id":1,"result":{"x":"${"x".repeat(100)}`);
    after.filter.fail(-33021, "died");
    after.filter.end();
    expect(after.calls).toEqual(["head", "emit", "fail -33021 cut"]);
  });

  it("offers no place for bytes of others", () => {
    expect(new Recorder().filter.isAtBoundary).toBe(false);
  });
});
