import { describe, expect, it } from "vitest";
import { shownLocation } from "../../src/gateway/shown-location.ts";
import { Secret } from "../../src/lib/index.ts";

const secret = "canary-5f3a~s=1";
const bearer = { headers: ["Authorization", `Bearer ${secret}`], secrets: [new Secret(`${secret}\n`)] };
const basicBlob = Buffer.from(`svc:${secret}`).toString("base64");
const basic = { headers: ["Authorization", `Basic ${basicBlob}`], secrets: [new Secret(secret)] };

describe("shownLocation", () => {
  it.each([
    ["https://login.example.com:8443/oauth/authorize?client=x#f", "https://login.example.com:8443/oauth/authorize"],
    ["/mcp/", "/mcp/"],
    ["https://h.example.com/a%20b/ok", "https://h.example.com/…/ok"],
    [`https://h.example.com/${"a".repeat(25)}`, "https://h.example.com/…"],
    ["https://user@h.example.com/x", "https://…/x"],
    ["", ""],
  ])("%s is shown as %s", (location, shown) => {
    expect(shownLocation(location, bearer)).toBe(shown);
  });

  it.each([
    ["plainly", secret],
    ["with percent signs", encodeURIComponent(secret)],
    ["with every byte as percent signs", [...Buffer.from(secret)].map((b) => `%${b.toString(16)}`).join("")],
    ["with percent signs twice", encodeURIComponent(encodeURIComponent(secret))],
    ["in base64", Buffer.from(secret).toString("base64")],
    ["in base64url", Buffer.from(`x:${secret}`).toString("base64url")],
    ["in base64 with percent signs", encodeURIComponent(Buffer.from(secret).toString("base64"))],
    ["in capitals", secret.toUpperCase()],
    ["in the middle of a segment", `a.${secret}.b`],
  ])("holds a secret %s: the origin alone is shown", (_, text) => {
    for (const place of [`/${text}`, `/cb/${text}/x`, `/cb?token=${text}`, `/cb#${text}`]) {
      expect(shownLocation(`https://h.example.com${place}`, bearer)).toBe("https://h.example.com");
      expect(shownLocation(place, bearer)).toBe("…");
    }
  });

  it("holds a secret in the host: nothing is shown", () => {
    const named = { headers: ["X-Key", "canary-host"], secrets: [new Secret("canary-host")] };
    expect(shownLocation("https://canary-host.example.com/x", named)).toBe("…");
    expect(shownLocation("https://CANARY-HOST/x", named)).toBe("…");
  });

  it("knows the blob that a user name and password were sent as", () => {
    expect(shownLocation(`https://h.example.com/${basicBlob}`, basic)).toBe("https://h.example.com");
    expect(shownLocation(`https://h.example.com/${secret}`, basic)).toBe("https://h.example.com");
  });
});
