import { describe, expect, it } from "vitest";
import { needlesOf } from "../../src/credentials/index.ts";
import { Secret } from "../../src/lib/index.ts";

const texts = (secret: string, headers: readonly string[] = []): string[] =>
  needlesOf({ headers, secrets: [new Secret(secret)] }).needles.map((needle) => needle.toString());

describe("needles", () => {
  it("C24 every form that software gives a value by itself", () => {
    const secret = 'p/ss+w ö<"&';
    const found = texts(secret);
    const { search } = new URL(`http://x/?a=${encodeURIComponent(secret)}`);
    expect(found).toContain(secret);
    expect(found).toContain(search.slice(3));
    expect(found).toContain("p%2fss%2bw%20%c3%b6%3c%22%26");
    expect(found).toContain(new URLSearchParams({ a: secret }).toString().slice(2));
    expect(found).toContain(Buffer.from(secret).toString("hex"));
    expect(found).toContain(Buffer.from(secret).toString("hex").toUpperCase());
    expect(found).toContain('p/ss+w ö<\\"&');
    expect(found).toContain('p/ss+w ö<\\\\\\"&');
    expect(found).toContain("p/ss+w ö&lt;&quot;&amp;");
  });

  it.each(["base64", "base64url"] as const)("C24 %s at every alignment, whatever stands around it", (encoding) => {
    const secret = "k?>~8+/z";
    const found = texts(secret);
    for (let before = 0; before < 7; before += 1) {
      for (let after = 0; after < 4; after += 1) {
        const text = Buffer.from("\xff".repeat(before) + secret + "\xff".repeat(after), "latin1").toString(encoding);
        expect(found.filter((needle) => text.includes(needle)).length).toBeGreaterThan(0);
      }
    }
  });

  it("the parts of a JWT and the whole of Basic, but no user name", () => {
    const jwt = "eyJhbGciOiJ9.eyJzdWIiOiJ9.c2lnbmF0dXJl";
    expect(texts(jwt)).toEqual(expect.arrayContaining(["eyJhbGciOiJ9.eyJzdWIiOiJ9", "c2lnbmF0dXJl"]));
    const blob = Buffer.from("svc-agents:password-1").toString("base64");
    const basic = needlesOf({
      headers: ["Authorization", `Basic ${blob}`],
      secrets: [new Secret("svc-agents"), new Secret("password-1\n")],
    }).needles.map((needle) => needle.toString());
    expect(basic).toEqual(expect.arrayContaining([blob, "password-1"]));
    expect(basic).not.toContain("svc-agents");
  });

  it("C24 an API key that is sent as the user name", () => {
    const blob = Buffer.from("sk-0123456789abcdef:x").toString("base64");
    const { needles } = needlesOf({
      headers: ["Authorization", `Basic ${blob}`],
      secrets: [new Secret("sk-0123456789abcdef"), new Secret("x")],
    });
    expect(needles.map(String)).toEqual(expect.arrayContaining([blob, "sk-0123456789abcdef"]));
  });

  it("none of a value so short that it would be found everywhere, and that is said", () => {
    expect(needlesOf({ headers: [], secrets: [new Secret("1234567")] })).toEqual({ needles: [], hasShort: true });
    expect(needlesOf({ headers: [], secrets: [new Secret("12345678")] }).hasShort).toBe(false);
    expect(needlesOf({ headers: [], secrets: [] })).toEqual({ needles: [], hasShort: false });
  });
});
