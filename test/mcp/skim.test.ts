import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MessageSkimmer } from "../../src/mcp/index.ts";

function skim(text: string | Buffer, sizes: readonly number[] = []): MessageSkimmer {
  const bytes = Buffer.isBuffer(text) ? text : Buffer.from(text);
  const skimmer = new MessageSkimmer();
  let at = 0;
  for (const size of sizes) {
    skimmer.push(bytes.subarray(at, at + size));
    at += size;
  }
  skimmer.push(bytes.subarray(at));
  return skimmer;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function findings(s: MessageSkimmer): unknown {
  return {
    isComplete: s.isComplete,
    isBroken: s.isBroken,
    isBlank: s.isBlank,
    isObject: s.isObject,
    isArray: s.isArray,
    isAmbiguous: s.isAmbiguous,
    idText: s.idText,
    method: s.method,
    hasMethod: s.hasMethod,
    hasResult: s.hasResult,
    hasError: s.hasError,
    hasList: s.hasList,
    hasInputRequests: s.hasInputRequests,
    isTask: s.isTask,
  };
}

describe("MessageSkimmer", () => {
  it.each([
    ['{"jsonrpc":"2.0","id":7,"result":{"content":[]}}', { idText: "7", hasResult: true, hasList: false }],
    ['{"result":{"content":[{"tools":[]}]},"id":"7"}', { idText: '"7"', hasResult: true, hasList: false }],
    ['{"id":1,"result":{"tools":[]}}', { hasList: true }],
    ['{"id":1,"result":{"\\u0074ools":[]}}', { hasList: true }],
    ['{"id":1,"result":{"prompts":[]}}', { hasList: true }],
    ['{"id":1,"result":{"resources":[]}}', { hasList: true }],
    ['{"id":1,"result":{"resourceTemplates":[]}}', { hasList: true }],
    ['{"id":1,"result":{"inputRequests":{}}}', { hasList: false, hasInputRequests: true }],
    ['{"id":1,"result":{"resultType":"task","task":{}}}', { isTask: true }],
    ['{"result":{"a":[1],"result\\u0054ype" : "t\\u0061sk"},"id":1}', { isTask: true, idText: "1" }],
    ['{"id":1,"result":{"resultType":"complete","a":"task"}}', { isTask: false }],
    ['{"id":1,"result":{"resultType":{"x":"task"},"b":"task"}}', { isTask: false }],
    ['{"id":1,"result":{"resultType":["task"]},"params":{"x":"task"}}', { isTask: false }],
    ['{"id":1,"result":{"a":{"resultType":"task"}}}', { isTask: false }],
    ['{"id":1,"params":{"resultType":"task"}}', { isTask: false }],
    ['{"id":1,"result":{"resultType":7},"x":{"y":"task"}}', { isTask: false }],
    [`{"id":1,"result":{"resultType":"${"t".repeat(5_000)}"}}`, { isTask: false, isBroken: false }],
    ['{"id":1,"result":{"text":"\\"tools\\":[\\\\"}}', { hasList: false }],
    ['{"id":1,"result":{"a":{"tools":[]}}}', { hasList: false }],
    ['{"id":1,"result":[{"tools":[]}]}', { hasResult: true, hasList: false }],
    ['{"id":1,"params":{"tools":[]},"error":{"tools":[]}}', { hasError: true, hasList: false }],
    ['{"id":1,"result":{"a":1},"x":{"tools":[]}}', { hasResult: true, hasList: false }],
    ['{"id":12345678901234567890,"result":1.0}', { idText: "12345678901234567890" }],
    ['{"id":1.50e+3,"result":null}', { idText: "1.50e+3", hasResult: true }],
    ['{"id":null,"error":{"code":1}}', { idText: "null", hasError: true }],
    ['{"id":"a\\u0062\\"c","method":"pi\\u006eg"}', { idText: '"a\\u0062\\"c"', method: "ping" }],
    ['{"method":"a","params":{"method":"b","id":1}}', { method: "a", idText: undefined }],
    [' {\r\n\t"id" : -0 , "result" : { } } \n', { idText: "-0", hasResult: true }],
    ["{}", { isObject: true, hasResult: false }],
  ] as const)("reads %s", (text, expected) => {
    const found = findings(skim(text));
    expect(found).toMatchObject({ isComplete: true, isAmbiguous: false, isArray: false, ...expected });
  });

  it.each(['[{"id":1}]', "[]", "[[1]]", ' \n[{"method":"x"}]'])("C15 sees a batch in %s", (text) => {
    expect(findings(skim(text))).toMatchObject({ isArray: true, isObject: false });
  });

  it.each([
    '{"id":1,"id":2,"result":{}}',
    '{"id":1,"result":{},"result":{"tools":[]}}',
    '{"id":1,"result":{},"r\\u0065sult":{}}',
    '{"id":1,"result":{"tools":[],"tools":[]}}',
    '{"id":1,"result":{"tools":[],"\\u0074ools":[]}}',
    '{"id":1,"Result":{"tools":[]}}',
    '{"id":1,"result":{"Tools":[]}}',
    '{"id":1,"result":{"tool\u017f":[]}}',
    '{"id":1,"result":{"tool\\u017f":[]}}',
    '{"method":"a","METHOD":"b"}',
    '{"id":{},"result":{}}',
    '{"id":[1],"result":{}}',
    '{"id":true,"result":{}}',
    '{"id":1,"method":7}',
  ])("finds %s ambiguous", (text) => {
    expect(skim(text).isAmbiguous).toBe(true);
  });

  it("C14 lets keys repeat that decide nothing", () => {
    const text = '{"id":1,"x":1,"x":2,"result":{"content":[],"content":[],"structuredContent":{"id":1,"id":2}}}';
    expect(findings(skim(text))).toMatchObject({ isComplete: true, isAmbiguous: false });
  });

  it.each([
    "",
    " ",
    "nope",
    "{",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    "{,}",
    '{"a":1 "b":2}',
    '{"a":[1,]}',
    '{"a":[1}}',
    '{"a":1]',
    '{"a":01}',
    '{"a":1.}',
    '{"a":-}',
    '{"a":1e}',
    '{"a":+1}',
    '{"a":NaN}',
    '{"a":tru}',
    '{"a":"\n"}',
    '{"a":"\\x"}',
    '{"a":"\\u12g4"}',
    "{'a':1}",
    "{a:1}",
    "{} {}",
    "{}x",
    '\ufeff{"a":1}',
    '{"a":1}\u00a0',
  ])("does not take %j for JSON", (text) => {
    expect(skim(text).isComplete).toBe(false);
  });

  it("agrees with JSON.parse about what JSON is", () => {
    const pieces = [
      '{"a":',
      '"id":1',
      "[",
      "]",
      "{",
      "}",
      ",",
      ":",
      '"x"',
      "1",
      "-",
      ".",
      "e",
      "0",
      "true",
      "nul",
      "l",
      " ",
      '"',
      "\\",
    ];
    const texts = fc.array(fc.constantFrom(...pieces), { maxLength: 9 }).map((parts) => `[${parts.join("")}]`);
    fc.assert(
      fc.property(texts, (text) => {
        let isJson = true;
        try {
          JSON.parse(text);
        } catch {
          isJson = false;
        }
        expect(skim(text).isComplete).toBe(isJson);
      }),
      { numRuns: 20_000 },
    );
  });

  it("C13 finds the same whatever the message is cut into", () => {
    const text =
      '{"j\\u0073onrpc":"2.0","id":"\\ud83d\\ude00é","m\\u0065thod":"x\u{1F600}","result":{"tools":[1.5e3,true]}}';
    const bytes = Buffer.from(text);
    const whole = findings(skim(bytes));
    expect(whole).toMatchObject({ method: "x\u{1F600}", idText: '"\\ud83d\\ude00é"', hasList: true });
    for (let at = 0; at <= bytes.length; at += 1) expect(findings(skim(bytes, [at]))).toEqual(whole);
    expect(findings(skim(bytes, Array(bytes.length).fill(1)))).toEqual(whole);
  });

  it("finds the same in any JSON, cut anywhere", () => {
    const key = fc.constantFrom("id", "method", "result", "error", "tools", "Tools", "inputRequests", "x", "é");
    const message = fc.dictionary(key, fc.oneof(fc.jsonValue(), fc.dictionary(key, fc.jsonValue())));
    fc.assert(
      fc.property(message, fc.array(fc.nat(9), { maxLength: 40 }), (value, sizes) => {
        const text = JSON.stringify(value);
        const whole = skim(text);
        expect(whole.isComplete).toBe(true);
        expect(findings(skim(text, sizes))).toEqual(findings(whole));
      }),
    );
  });

  it("reads a long string as JSON.parse does, whatever stands in it and wherever", () => {
    const pieces = [
      '"',
      "\\n",
      '\\"',
      "\\\\",
      "\\x",
      "\\",
      "\u001f",
      "\u0000",
      "\n",
      " ",
      "\u007f",
      "é",
      "€",
      "\u{1f600}",
    ];
    for (const piece of pieces) {
      // Around the length from which words are read, and every place in a word.
      for (let before = 250; before < 275; before += 1) {
        for (const after of [0, 1, 2, 3, 4, 5, 300]) {
          const text = `{"id":1,"result":{"a":"${"x".repeat(before)}${piece}${"y".repeat(after)}"}}`;
          expect(skim(text).isComplete, JSON.stringify({ piece, before, after })).toBe(isJson(text));
        }
      }
    }
  });

  it("bears depth up to its cap and no further", () => {
    expect(skim(`${"[".repeat(1024)}${"]".repeat(1024)}`).isComplete).toBe(true);
    expect(skim(`${"[".repeat(1025)}${"]".repeat(1025)}`).isBroken).toBe(true);
    expect(skim("[".repeat(1_000_000)).isBroken).toBe(true);
  });

  it("does not keep ids, methods or keys of any length", () => {
    const long = "x".repeat(5_000);
    expect(skim(`{"id":"${long}","result":{}}`).isBroken).toBe(true);
    expect(skim(`{"id":"${long}","result":{}}`, Array(5_000).fill(1)).isBroken).toBe(true);
    expect(skim(`{"method":"${long}"}`).isBroken).toBe(true);
    expect(findings(skim(`{"${long}":1,"id":1,"result":{"${long}":2}}`))).toMatchObject({
      isComplete: true,
      idText: "1",
    });
    const escaped = [..."resourceTemplates"].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
    expect(skim(`{"result":{"${escaped}":[]}}`).hasList).toBe(true);
  });
});
