import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { editLists, readInputMethods, readUpdatedUri } from "../../src/mcp/index.ts";

function edit(text: string, shown: readonly string[]): string {
  const result = editLists(Buffer.from(text), (_kind, name) => shown.includes(name));
  return result.kind === "edited" ? result.bytes.toString() : result.kind;
}

describe("editLists", () => {
  it("C14 keeps every byte of the entries that stay", () => {
    const kept =
      '{ "name":"b","n":9007199254740993,"x":1.0,"y":1e400,"z":-0,"\\u00e9":"\\/","a":1,"a":2, "_meta":{"k":{}} }';
    const text = `{"jsonrpc":"2.0","id":1,"result":{ "nextCursor":"c", "tools" : [ {"name":"a"} ,\n ${kept}, {"name":"c"} ] ,"ttlMs":5,"x":[1, 2]}} `;
    const expected = `{"jsonrpc":"2.0","id":1,"result":{ "nextCursor":"c", "tools" : [ ${kept} ] ,"ttlMs":5,"x":[1, 2]}} `;
    expect(edit(text, ["b"])).toBe(expected);
    expect(edit(text, ["a", "b", "c"])).toBe("same");
  });

  it.each([
    [["a"], '[ {"name":"a"} ]'],
    [["b"], '[ {"name":"b"} ]'],
    [["c"], '[ {"name":"c"} ]'],
    [["a", "b"], '[ {"name":"a"} ,  {"name":"b"} ]'],
    [["a", "c"], '[ {"name":"a"}\t,{"name":"c"} ]'],
    [["b", "c"], '[ {"name":"b"}\t,{"name":"c"} ]'],
    [[], "[]"],
  ])("keeps %j in order", (shown, expected) => {
    const text = '{"result":{"tools":[ {"name":"a"} ,  {"name":"b"}\t,{"name":"c"} ]}}';
    const got = edit(text, shown);
    expect(got).toBe(`{"result":{"tools":${expected}}}`);
    expect(JSON.parse(got).result.tools.map((tool: { name: string }) => tool.name)).toEqual(shown);
  });

  it("reads the name of each kind of entry", () => {
    const text =
      '{"result":{"prompts":[{"name":"p"}],"resources":[{"uri":"u","name":"n"}],"resourceTemplates":[{"uriTemplate":"t","uri":"u"}],"tools":[]}}';
    const seen: string[] = [];
    const result = editLists(Buffer.from(text), (kind, name) => {
      seen.push(`${kind} ${name}`);
      return kind === "resources";
    });
    expect(seen).toEqual(["prompts p", "resources u", "resourceTemplates t"]);
    expect(result).toMatchObject({ kind: "edited", removedCount: 2 });
    expect(edit(text, ["u"])).toBe(
      '{"result":{"prompts":[],"resources":[{"uri":"u","name":"n"}],"resourceTemplates":[],"tools":[]}}',
    );
  });

  it.each([
    '{"name":"b","name":"a"}',
    '{"name":"a","name":"b"}',
    '{"name":"a","n\\u0061me":"b"}',
    '{"name":"a","Name":"b"}',
    '{"title":"a"}',
    '{"name":["a"]}',
    '{"name":null}',
    '["a"]',
    '"a"',
    "7",
    "null",
    '{"x":{"name":"a"}}',
  ])("C16 does not show the entry %s", (entry) => {
    expect(edit(`{"result":{"tools":[${entry}]}}`, ["a", "b"])).toBe('{"result":{"tools":[]}}');
  });

  it("judges the name as a parser reads it", () => {
    expect(edit('{"result":{"tools":[{"\\u006eame":"\\u0061"}]}}', ["a"])).toBe("same");
    const invalid = Buffer.concat([
      Buffer.from('{"result":{"tools":[{"name":"a'),
      Buffer.from([0xff]),
      Buffer.from('"}]}}'),
    ]);
    const result = editLists(invalid, () => true);
    expect(result.kind === "edited" && result.bytes.toString()).toBe('{"result":{"tools":[]}}');
  });

  it.each([
    '{"result":{"tools":[],"tools":[{"name":"a"}]}}',
    '{"result":{"tools":[],"Tools":[]}}',
    '{"result":{"tools":{}}}',
    '{"result":{"tools":null}}',
    '{"result":{"tools":"x"}}',
    '{"result":{"tools":[]},"result":{}}',
  ])("refuses %s", (text) => {
    expect(edit(text, ["a"])).toBe("refused");
  });

  it("is not fooled by what strings hold", () => {
    const text =
      '{"result":{"note":"\\"tools\\":[{\\"name\\":\\"x\\"}]","tools":[{"d":"]}\\\\","name":"a"},{"name":"b","d":"[{\\""}]}}';
    expect(edit(text, ["a"])).toBe(
      '{"result":{"note":"\\"tools\\":[{\\"name\\":\\"x\\"}]","tools":[{"d":"]}\\\\","name":"a"}]}}',
    );
  });

  it("shows what a filter over the parsed message shows, and parses to nothing else", () => {
    const name = fc.constantFrom("a", "b", "c", "a\u0000", "\u00e9", '"]}');
    const entry = fc.oneof(fc.record({ x: fc.jsonValue(), name, y: fc.jsonValue() }), fc.jsonValue());
    const lists = { tools: fc.array(entry, { maxLength: 6 }), prompts: fc.array(entry, { maxLength: 3 }) };
    const message = fc.record({
      id: fc.integer(),
      result: fc.record({ _meta: fc.jsonValue(), ...lists, z: fc.jsonValue() }),
    });
    const isShown = (value: unknown): boolean => {
      const given = (value as { name?: unknown } | null)?.name;
      const ownName = typeof value === "object" && value !== null && Object.hasOwn(value, "name") ? given : undefined;
      return ownName === "a" || ownName === '"]}';
    };
    fc.assert(
      fc.property(message, fc.constantFrom("", " ", "\t\n"), (value, indent) => {
        const original = Buffer.from(JSON.stringify(value, null, indent));
        const result = editLists(original, (_kind, given) => given === "a" || given === '"]}');
        const { tools, prompts } = value.result;
        const expected = { ...value.result, tools: tools.filter(isShown), prompts: prompts.filter(isShown) };
        const edited = result.kind === "edited" ? result.bytes : original;
        expect(JSON.parse(edited.toString())).toEqual(JSON.parse(JSON.stringify({ ...value, result: expected })));
      }),
      { numRuns: 1_000 },
    );
  });

  it("refuses a list that is longer than any that is meant", () => {
    const list = (count: number): string => `{"result":{"tools":[${"0,".repeat(count - 1)}0]}}`;
    expect(edit(list(100_000), [])).toBe('{"result":{"tools":[]}}');
    expect(edit(list(100_001), [])).toBe("refused");
  });

  it("C19 keeps the cursor of a page without hits", () => {
    expect(edit('{"result":{"tools":[{"name":"x"}],"nextCursor":"50"}}', [])).toBe(
      '{"result":{"tools":[],"nextCursor":"50"}}',
    );
  });
});

describe("readUpdatedUri", () => {
  const read = (text: string): string | undefined => readUpdatedUri(Buffer.from(text));

  it("reads the uri", () => {
    expect(read('{"method":"m","params":{"_meta":{"uri":"x"},"uri":"file:\\/\\/a"}}')).toBe("file://a");
  });

  it.each([
    '{"params":{"uri":"a","uri":"b"}}',
    '{"params":{"uri":"a","URI":"b"}}',
    '{"params":{"uri":"a"},"params":{"uri":"b"}}',
    '{"params":{"uri":7}}',
    '{"params":{}}',
    '{"params":["uri"]}',
    "{}",
  ])("does not guess at %s", (text) => {
    expect(read(text)).toBeUndefined();
  });
});

describe("readInputMethods", () => {
  const read = (text: string): unknown => readInputMethods(Buffer.from(text));

  it("reads the method of every entry", () => {
    const text =
      '{"result":{"inputRequests":{"a":{"method":"roots/list"},"b":{"params":{"method":"x"}},"c":{"method":"x","method":"y"},"d":7}}}';
    expect(read(text)).toEqual(["roots/list", undefined, undefined, undefined]);
  });

  it.each([
    '{"result":{"inputRequests":[]}}',
    '{"result":{"inputRequests":{},"inputRequests":{}}}',
    '{"result":{}}',
    "{}",
  ])("does not guess at %s", (text) => {
    expect(read(text)).toBeUndefined();
  });
});
