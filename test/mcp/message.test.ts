import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type AgentMessage, idKeyOf, type Refusal, readMessage } from "../../src/mcp/index.ts";

function read(text: string): AgentMessage | Refusal {
  return readMessage(Buffer.from(text));
}

function call(members: string): string {
  return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${members}}}`;
}

const denied = call('"name":"del_x","arguments":{}');
const allowed = call('"name":"get_x","arguments":{}');

function expectRefused(result: AgentMessage | Refusal, code: number): void {
  expect(result).toMatchObject({ kind: "refusal", status: 400, code });
}

describe("C15 batches", () => {
  it.each([`[${denied}]`, `[${allowed},${denied}]`, "[]", `[[${denied}]]`, ` \t\r\n[${denied}]`, `[${allowed}]`])(
    "C15 %s is refused",
    (text) => {
      expectRefused(read(text), -32600);
    },
  );

  it("C15 a byte order mark is refused before a batch and before an object", () => {
    expectRefused(read(`\ufeff[${denied}]`), -32700);
    expectRefused(read(`\ufeff${allowed}`), -32700);
  });

  it("C15 a compressed body is no JSON", () => {
    expectRefused(readMessage(gzipSync(allowed)), -32700);
  });

  it.each(["", " ", "null", "7", '"tools/call"', "true", "{", "{}}", `${allowed}${allowed}`, "{'a':1}", "NaN"])(
    "C15 %j is refused",
    (text) => {
      expect(read(text).kind).toBe("refusal");
    },
  );
});

describe("C16 keys that parsers read differently", () => {
  it.each([
    ["twice", call('"name":"del_x","name":"get_x"')],
    ["once with an escape", call('"name":"del_x","n\\u0061me":"get_x"')],
    ["twice at the top", '{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}'],
    ["twice as an id", '{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}'],
    ["twice deep in the arguments", call('"name":"get_x","arguments":{"a":[{"b":{"k":1,"\\u006b":2}}]}')],
    ["twice as __proto__", call('"name":"get_x","__proto__":{},"__proto__":{"name":"x"}')],
    ["twice as a number", call('"name":"get_x","arguments":{"1":1,"1":2}')],
    ["twice as the empty text", call('"name":"get_x","arguments":{"":1,"":2}')],
    ["twice, the first one hiding others", call('"name":"get_x","arguments":{"a":{"b":1,"c":2},"a":{}}')],
  ])("C16 a key that repeats is refused: %s", (_, text) => {
    expectRefused(read(text), -32600);
  });

  it.each([
    ["Name", call('"Name":"get_x"')],
    ["NAME beside name", call('"name":"del_x","NAME":"get_x"')],
    ["n\\u0041me", call('"n\\u0041me":"get_x"')],
    ["URI", call('"URI":"file:///x"')],
    ["ta\u017fk, with a long s", call('"name":"get_x","ta\u017fk":{}')],
    ["tas\u212a, with a Kelvin sign", call('"name":"get_x","tas\u212a":{}')],
    ["Method", '{"jsonrpc":"2.0","id":1,"Method":"tools/call"}'],
    ["Params", '{"jsonrpc":"2.0","id":1,"method":"a","params":{},"Params":{}}'],
    ["ID", '{"jsonrpc":"2.0","ID":1,"method":"a"}'],
    ["JSONRPC", '{"JSONRPC":"2.0","jsonrpc":"2.0","id":1,"method":"a"}'],
    ["Result", '{"jsonrpc":"2.0","id":1,"method":"a","Result":{}}'],
    ["_Meta", call('"name":"get_x","_Meta":{}')],
    ["protocolversion", call('"name":"get_x","_meta":{"io.modelcontextprotocol/protocolversion":"2026-07-28"}')],
    ["ref.Type", call('"ref":{"Type":"ref/prompt","type":"ref/prompt"}')],
    ["ref.Uri", call('"ref":{"type":"ref/resource","Uri":"x:y"}')],
    ["resourcesubscriptions", call('"notifications":{"resourcesubscriptions":[]}')],
  ])("C16 a judged key in another case is refused, even alone: %s", (_, text) => {
    expectRefused(read(text), -32600);
  });

  it("C16 keys that nobody judges may be written as they like, and repeat in different objects", () => {
    const text = call('"name":"get_x","arguments":{"Name":1,"URI":2,"a":{"name":1},"b":{"name":1}},"_meta":{"Name":3}');
    expect(read(text)).toMatchObject({ kind: "request", method: "tools/call" });
  });

  it.each([
    ["a name", call('"name":"get_\\ud800"')],
    ["a name, low half", call('"name":"\\uDC00get_x"')],
    ["a uri", call('"uri":"file:///\\udfff"')],
    ["the method", '{"jsonrpc":"2.0","id":1,"method":"\\ud83d"}'],
    ["the id", '{"jsonrpc":"2.0","id":"\\ud83d","method":"a"}'],
    ["a reference", call('"ref":{"type":"ref/prompt","name":"\\ud83d\\ud83d"}')],
    ["a subscription", call('"notifications":{"resourceSubscriptions":["a:b","a:\\ud83d"]}')],
    ["a key, however deep", call('"name":"get_x","arguments":{"a":[{"\\ud83d":1}]}')],
  ])("C16 half a surrogate pair is refused in %s", (_, text) => {
    expectRefused(read(text), -32600);
  });

  it("C16 whole pairs pass everywhere, half ones in what nobody judges", () => {
    expect(read(call('"name":"get_\\ud83d\\ude00","arguments":{"\\ud83d\\ude00":"\\ud83d"}')).kind).toBe("request");
  });

  it("C16 invalid UTF-8 is refused", () => {
    for (const bytes of [[0xff], [0xc0, 0xae], [0xed, 0xa0, 0x80], [0xe2, 0x82], [0xf5, 0x80, 0x80, 0x80]]) {
      const [before, after] = call('"name":"get_x|"').split("|");
      const body = Buffer.concat([Buffer.from(before ?? ""), Buffer.from(bytes), Buffer.from(after ?? "")]);
      expectRefused(readMessage(body), -32700);
    }
  });
});

describe("C14 ids and numbers keep their bytes", () => {
  it.each(["7", "7.0", "-0", "1e3", "9007199254740993", "0.1", '"7"', '""', '"\\u0037"', '"a,b}\\"{:"', "1e400"])(
    "C14 the id %s is kept as written",
    (id) => {
      expect(read(`{"jsonrpc":"2.0", "id" : ${id} ,"method":"ping"}`)).toMatchObject({ kind: "request", idText: id });
      expect(read(`{"method":"ping","jsonrpc":"2.0","\\u0069d":${id}}`)).toMatchObject({ idText: id });
      expect(read(`{"method":"x","params":{"id":5},"jsonrpc":"2.0","id":\n${id}\n}`)).toMatchObject({ idText: id });
    },
  );

  it("C14 reading leaves the bytes alone", () => {
    const text = call('"name":"get_x","arguments":{"id":1915883588174806058,"x":1.0,"y":1e400,"z":-0},"extra":null');
    const body = Buffer.from(text);
    expect(readMessage(body).kind).toBe("request");
    expect(body.toString()).toBe(text);
  });

  it("tells ids apart as a server does", () => {
    expect(idKeyOf("7")).toBe(idKeyOf("7.0"));
    expect(idKeyOf("7")).not.toBe(idKeyOf('"7"'));
    expect(idKeyOf('"7"')).toBe(idKeyOf('"\\u0037"'));
    expect(idKeyOf("1.5")).toBe(idKeyOf("150e-2"));
    // One number to a JavaScript server, which would swap the answers.
    expect(idKeyOf("9007199254740993")).toBe(idKeyOf("9007199254740992"));
    expect(idKeyOf("9007199254740994")).not.toBe(idKeyOf("9007199254740992"));
    expect(idKeyOf("1e400")).toBe(idKeyOf("1e401"));
    expect(idKeyOf("1e400")).not.toBe(idKeyOf("-1e400"));
  });
});

describe("shape", () => {
  it.each([
    ["null", "null"],
    ["true", "true"],
    ["an array", "[1]"],
    ["an object", '{"a":1}'],
    ["longer than any client's", `"${"x".repeat(1100)}"`],
  ])("an id that is %s is refused", (_, id) => {
    expectRefused(read(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`), -32600);
  });

  it.each([
    '{"id":1,"method":"ping"}',
    '{"jsonrpc":"1.0","id":1,"method":"ping"}',
    '{"jsonrpc":2.0,"id":1,"method":"ping"}',
    '{"jsonrpc":"2.0","id":1}',
    '{"jsonrpc":"2.0","id":1,"method":7}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","error":{}}',
    '{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
    '{"jsonrpc":"2.0","result":{}}',
    '{"jsonrpc":"2.0","id":null,"result":{}}',
    '{"jsonrpc":"2.0","id":[1],"error":{"code":1,"message":"x"}}',
  ])("%s is refused", (text) => {
    expectRefused(read(text), -32600);
  });

  it("classifies requests, notifications and responses", () => {
    expect(read('{"jsonrpc":"2.0","id":"a","method":"ping"}')).toEqual({
      kind: "request",
      idText: '"a"',
      method: "ping",
      params: undefined,
    });
    expect(read('{"jsonrpc":"2.0","method":"notifications/x","params":{"id":3}}')).toEqual({
      kind: "notification",
      idText: undefined,
      method: "notifications/x",
      params: {},
    });
    expect(read('{"jsonrpc":"2.0","id":4,"result":{"id":3}}')).toMatchObject({ kind: "response", idText: "4" });
    expect(read('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}')).toMatchObject({
      kind: "response",
      idText: undefined,
    });
  });
});

describe("what is built", () => {
  it("is what is judged, and no more", () => {
    const text = call('"name":"x","arguments":{"a":1},"_meta":{"v":[1]},"cursor":"c","other":{},"task":null');
    expect(read(text)).toMatchObject({ params: { name: "x", _meta: { v: [1] }, task: null } });
    expect(Object.keys((read(text) as AgentMessage).params ?? {}).sort()).toEqual(["_meta", "name", "task"]);
  });

  it("is bounded, so that no judged member holds up the event loop", () => {
    for (const key of ["_meta", "notifications", "ref", "name"]) {
      expectRefused(read(call(`"${key}":{"a":[${"{},".repeat(100_000)}1]}`)), -32600);
    }
    expect(read(call(`"arguments":{"a":[${"{},".repeat(100_000)}1]}`)).kind).toBe("request");
    expect(read(call(`"name":"${"x".repeat(300_000)}"`)).kind).toBe("request");
  });
});

describe("nesting", () => {
  const nested = (depth: number) => call(`"name":"x","arguments":${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`);

  it("is allowed to 128 and refused beyond", () => {
    expect(read(nested(126)).kind).toBe("request");
    expectRefused(read(nested(127)), -32600);
    expectRefused(read(call(`"arguments":${"[".repeat(127)}${"]".repeat(127)}`)), -32600);
  });

  it("of a million blows no stack, whole or cut off", () => {
    for (const open of ["[", '{"a":', '[{"a":']) expect(read(open.repeat(500_000)).kind).toBe("refusal");
    expectRefused(read("[".repeat(500_000) + "]".repeat(500_000)), -32600);
  });
});

describe("hostile sizes take a time that grows with their length alone", () => {
  it.each([
    ["keys", `{${Array.from({ length: 100_000 }, (_, i) => `"k${i}":1`).join()}}`],
    ["backslashes", `"${"\\\\".repeat(1_000_000)}"`],
    ["escaped quotes", `"${'\\"'.repeat(1_000_000)}"`],
    ["an open string of backslashes", `"${"\\".repeat(2_000_000)}`],
    ["empty objects", `[${"{},".repeat(300_000)}{}]`],
  ])("%s", (_, value) => {
    const body = Buffer.from(call(`"name":"x","arguments":{"a":${value}}`));
    const started = performance.now();
    readMessage(body);
    expect(performance.now() - started).toBeLessThan(5000);
  });
});

/** A value as entries, so that a key may repeat, with the text it is written as. */
type Tree = { readonly text: string; readonly repeats: boolean };

const key = fc.constantFrom("a", "b", "\\u0061", "c", "", "__proto__", "1", "\\n", '\\"');
const space = fc.constantFrom("", " ", "\n", "\t ");
const scalar = fc.oneof(fc.jsonValue({ maxDepth: 0 }).map((value) => JSON.stringify(value)));
const { tree } = fc.letrec<{ tree: Tree; object: Tree }>((tie) => ({
  tree: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    scalar.map((text) => ({ text, repeats: false })),
    fc.array(tie("tree"), { maxLength: 3 }).map((items) => ({
      text: `[${items.map((item) => item.text).join(",")}]`,
      repeats: items.some((item) => item.repeats),
    })),
    tie("object"),
  ),
  object: fc.array(fc.tuple(key, space, tie("tree")), { maxLength: 4 }).map((entries) => {
    const names = entries.map(([name]) => JSON.parse(`"${name}"`) as string);
    return {
      text: `{${entries.map(([name, blank, value]) => `${blank}"${name}"${blank}:${blank}${value.text}${blank}`).join(",")}}`,
      repeats: new Set(names).size < names.length || entries.some(([, , value]) => value.repeats),
    };
  }),
}));

describe("against JSON.parse", () => {
  it("reads what it reads and refuses just the texts in which a key repeats", () => {
    fc.assert(
      fc.property(tree, ({ text, repeats }) => {
        const result = read(call(`"arguments":${text}`));
        expect(result.kind).toBe(repeats ? "refusal" : "request");
        const judged = read(call(`"_meta":${text}`));
        expect(judged.kind).toBe(repeats ? "refusal" : "request");
        if (judged.kind !== "refusal") expect(judged.params).toEqual({ _meta: JSON.parse(text) });
      }),
      { numRuns: 2000 },
    );
  });

  it("refuses whatever is no JSON, and never throws", () => {
    const broken = fc
      .tuple(fc.constantFrom(allowed, denied, call('"a":[1,{"b":"\\u00e9\\\\"}]')), fc.nat(), fc.nat(255), fc.boolean())
      .map(([text, at, byte, isInsert]) => {
        const bytes = Buffer.from(text);
        const i = at % bytes.length;
        return Buffer.concat([bytes.subarray(0, i), Buffer.from([byte]), bytes.subarray(isInsert ? i : i + 1)]);
      });
    fc.assert(
      fc.property(broken, (body) => {
        const result = readMessage(body);
        if (result.kind === "refusal") return;
        const parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as Record<string, unknown>;
        expect(result.method).toBe(parsed["method"]);
        for (const [key, value] of Object.entries(result.params ?? {})) {
          expect((parsed["params"] as Record<string, unknown>)[key]).toEqual(value);
        }
        expect(result.idText === undefined ? undefined : JSON.parse(result.idText)).toEqual(parsed["id"]);
      }),
      { numRuns: 3000 },
    );
  });

  it("never throws on any bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        expect(readMessage(Buffer.from(bytes)).kind).toMatch(/refusal|request|notification|response/);
      }),
    );
  });

  it("keeps the id wherever it stands and whatever surrounds it", () => {
    const id = fc.oneof(
      fc.maxSafeInteger().map(String),
      fc.string().map((text) => JSON.stringify(text)),
    );
    fc.assert(
      fc.property(id, tree, space, fc.boolean(), (idText, extra, blank, isFirst) => {
        fc.pre(
          !extra.repeats &&
            !JSON.parse(idText)
              .toString()
              .match(/\p{Surrogate}/u),
        );
        const members = [`"id"${blank}:${blank}${idText}${blank}`, `"extra":${extra.text}`];
        if (!isFirst) members.reverse();
        expect(read(`{"jsonrpc":"2.0","method":"m",${members.join(",")}}`)).toMatchObject({ idText });
      }),
    );
  });
});
