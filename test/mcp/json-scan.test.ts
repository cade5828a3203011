import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { scanObject } from "../../src/mcp/json-scan.ts";

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const valid = fc.constantFrom(
  '{"a":1,"b":[true,false,null],"params":{"c":-0.5e+10,"d":"\\u00e9\\\\\\"\\/\\b\\f\\n\\r\\t"}}',
  '{"x":{},"y":[],"z":"","params":[{}],"n":[0,-0,10,1.5,1E5,2e-3]}',
  ' {\t"a" :\r\n{ "b" : [ 1 , 2 ] } } ',
);
const sign = fc.constantFrom(...'{}[]",:\\u0019eE+-.tfnal \n\t\u0001\u00e9/x');

describe("the scanner", () => {
  it("accepts the grammar that JSON.parse accepts, no more and no less", () => {
    let accepted = 0;
    let refused = 0;
    fc.assert(
      fc.property(valid, fc.array(fc.tuple(fc.nat(), fc.nat(2), sign), { maxLength: 2 }), (text, edits) => {
        let edited = text;
        for (const [place, cut, added] of edits) {
          const at = place % edited.length;
          edited = edited.slice(0, at) + (cut === 0 ? added : cut === 1 ? "" : added + added) + edited.slice(at + 1);
        }
        fc.pre(edited.trimStart().startsWith("{"));
        const scanned = scanObject(edited, 128);
        fc.pre(scanned !== "repeat");
        expect(scanned === "syntax").toBe(!isJson(edited));
        if (scanned === "syntax") refused += 1;
        else accepted += 1;
      }),
      { numRuns: 20_000 },
    );
    expect(Math.min(accepted, refused)).toBeGreaterThan(1000);
  });

  it.each([
    '{"a":01}',
    '{"a":-}',
    '{"a":+1}',
    '{"a":.5}',
    '{"a":1.}',
    '{"a":1e}',
    '{"a":0x10}',
    '{"a":1_000}',
    '{"a":Infinity}',
    '{"a":nul}',
    '{"a":truefalse}',
    '{"a":"\\x41"}',
    '{"a":"\\u12g4"}',
    '{"a":"\t"}',
    '{"a":1,}',
    '{,"a":1}',
    '{"a" 1}',
    "{a:1}",
    '{"a":[1,]}',
    '{"a":[1 2]}',
    '{"a":[}',
    '{"a":{]}',
    '{"a":1]',
    '{"a":1}}',
    '{"a":1}\u00a0',
    '{"a":1}//x',
    '{"a":1/*x*/}',
    '{"a":\u20281}',
    '{"a"',
    '{"a',
    "{",
  ])("refuses %j", (text) => {
    expect(isJson(text)).toBe(false);
    expect(scanObject(text, 128)).toBe("syntax");
  });

  it("tells the members of the message and of its params", () => {
    const text = '{ "a" : [1, {"params":{"x":1}}] ,"params":{"n\\u0061me" :"v", "o":{"p":2}},"z":{"params":{"y":1}}}';
    const scanned = scanObject(text, 128);
    if (typeof scanned === "string") throw new Error(scanned);
    expect(Object.fromEntries(scanned.members)).toEqual({
      a: '[1, {"params":{"x":1}}]',
      params: '{"n\\u0061me" :"v", "o":{"p":2}}',
      z: '{"params":{"y":1}}',
    });
    expect(Object.fromEntries(scanned.params ?? [])).toEqual({ name: '"v"', o: '{"p":2}' });
  });

  it("has no params where they are no object", () => {
    for (const text of ["{}", '{"params":[]}', '{"params":[{"name":1}]}', '{"params":"{}"}', '{"a":{"params":{}}}']) {
      const scanned = scanObject(text, 128);
      expect(typeof scanned === "string" ? scanned : scanned.params).toBeUndefined();
    }
    expect(scanObject('{"params":{}}', 128)).toMatchObject({ params: new Map() });
  });

  it("C16 finds a key that repeats among few or many, after any objects before and within", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 }),
        fc.nat(),
        fc.constantFrom("1", "{}", '{"k0":[{"k0":1}]}'),
        (n, nth, v) => {
          const members = Array.from({ length: n }, (_, i) => `"k${i}":${v}`);
          expect(scanObject(`{"first":{${members.join()}},"second":{${members.join()}}}`, 128)).toBeTypeOf("object");
          expect(scanObject(`{"first":{},"second":{${members.join()},"k${nth % n}":1}}`, 128)).toBe("repeat");
          expect(scanObject(`{${members.join()},"k":{"a":1},"\\u006b${nth % n}":1}`, 128)).toBe("repeat");
        },
      ),
    );
  });

  it("stops at the depth it is given", () => {
    expect(scanObject('{"a":[{}]}', 3)).toBeTypeOf("object");
    expect(scanObject('{"a":[{}]}', 2)).toBe("depth");
    expect(scanObject(`{"a":${"[".repeat(1_000_000)}`, 128)).toBe("depth");
  });
});
