import { describe, expect, it } from "vitest";
import { isEventStream, isJson, parseMediaType } from "../../src/mcp/index.ts";

describe("media types", () => {
  it.each([
    "application/json",
    "Application/JSON",
    "application/json; charset=utf-8",
    "application/json;charset=UTF-8",
    'application/json; charset="utf-8"',
    "application/json;",
    "application/json ; v=1; charset=utf8",
    ' application/json; a="x;charset=latin1"',
  ])("%j is JSON", (header) => {
    expect(isJson(header)).toBe(true);
  });

  it.each([
    undefined,
    "",
    "application/json-patch",
    "application/jsonx",
    "application/ld+json",
    "text/json",
    "application/json; charset=latin1",
    "application/json; charset=utf-16",
    "application/json; charset=utf-8; charset=latin1",
    "application/json; charset=latin1; charset=utf-8",
    'application/json; charset="utf-16\\8"',
    "application/json, text/plain",
    "text/plain; application/json",
    "application/json charset=utf-8",
    "application/json; charset",
    "json",
    `application/json;${" ".repeat(5000)}`,
  ])("%j is not", (header) => {
    expect(isJson(header)).toBe(false);
  });

  it("an event stream is one whatever its case and parameters", () => {
    expect(isEventStream("text/event-stream")).toBe(true);
    expect(isEventStream("Text/Event-Stream; charset=utf-8")).toBe(true);
    expect(isEventStream("text/event-streams")).toBe(false);
    expect(isEventStream("text/event-stream; charset=utf-16")).toBe(false);
    expect(isEventStream(undefined)).toBe(false);
  });

  it("tells essence and charset apart", () => {
    expect(parseMediaType('Text/HTML; a=b; Charset="ISO-8859-1"')).toEqual({
      essence: "text/html",
      charset: "iso-8859-1",
    });
  });
});
