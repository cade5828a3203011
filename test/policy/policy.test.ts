import { describe, expect, it } from "vitest";
import { compilePolicy } from "../../src/policy/index.ts";
import { admitsTemplate, admitsTool, admitsUri, at, denial, grant, policyOf } from "./build.ts";

describe("C17 an empty allowlist means nothing", () => {
  it("C17 an empty list denies every name of its kind", () => {
    const policy = policyOf({ tools: [], prompts: [], resources: [], resourceTemplates: [] });
    expect(admitsTool(policy, "get_x")).toBe(false);
    expect(policy.decide("tickets", { kind: "prompt", name: "p" }).kind).toBe("deny");
    expect(admitsUri(policy, "ticket://open/1")).toBe(false);
    expect(admitsTemplate(policy, "ticket://open/{id}")).toBe(false);
  });

  it("C17 a key that is absent denies, though another key allows", () => {
    const policy = policyOf({ tools: ["*"] });
    expect(admitsTool(policy, "get_x")).toBe(true);
    expect(policy.decide("tickets", { kind: "prompt", name: "get_x" })).toMatchObject({ reason: "not-allowed" });
    expect(admitsUri(policy, "get_x")).toBe(false);
  });

  it("C17 two entries are their union", () => {
    const policy = policyOf({ tools: ["get_x", "list_*"] });
    expect(["get_x", "list_y", "list_", "get_y"].map((name) => admitsTool(policy, name))).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });

  it("C17 names are compared as written, blanks included", () => {
    const policy = policyOf({ tools: ["get_x "] });
    expect(admitsTool(policy, "get_x ")).toBe(true);
    expect(admitsTool(policy, "get_x")).toBe(false);
    expect(admitsTool(policyOf({ tools: ["get_x"] }), "get_x ")).toBe(false);
  });

  it("C17 an empty deny and an empty except exclude nothing", () => {
    const policy = policyOf({ tools: [{ name: "*", except: [] }] }, { tools: [] });
    expect(admitsTool(policy, "anything")).toBe(true);
  });

  it("C17 a server without an entry or without a grant denies everything, open methods too", () => {
    const policy = compilePolicy({ servers: { crm: { grants: [], deny: denial() } } });
    for (const server of ["crm", "tickets", "constructor", "__proto__", ""]) {
      expect(policy.hasGrant(server)).toBe(false);
      expect(policy.decide(server, { kind: "open" })).toMatchObject({ kind: "deny", reason: "no-grant" });
      expect(policy.shows(server, "tools", "x")).toBe(false);
      expect(policy.admitsAsk(server, "roots")).toBe(false);
    }
  });
});

describe("C18 one rule for case, globs and Unicode", () => {
  const nfc = "caf\u00e9";
  const nfd = "cafe\u0301";

  it.each(["delete_x", "delete_", "delete_a/b", "delete_.x", "delete_x\n", "delete_\u2028", "delete_\u{1f600}"])(
    "C18 a deny and an except of delete_* catch %j",
    (name) => {
      expect(admitsTool(policyOf({ tools: ["*"] }, { tools: ["delete_*"] }), name)).toBe(false);
      expect(admitsTool(policyOf({ tools: [{ name: "*", except: ["delete_*"] }] }), name)).toBe(false);
    },
  );

  it("C18 a variant of a denied name passes only where a rule allows that variant", () => {
    const variants = ["Delete_x", "DELETE_X", "\uff44elete_x", "\u0434elete_x"];
    const narrow = policyOf({ tools: ["get_*"] }, { tools: ["delete_*"] });
    for (const name of variants) expect(admitsTool(narrow, name)).toBe(false);
    const wide = policyOf({ tools: ["*"] }, { tools: ["delete_*"] });
    for (const name of variants) expect(admitsTool(wide, name)).toBe(true);
  });

  it("C18 composed and decomposed forms are two names", () => {
    expect(admitsTool(policyOf({ tools: [nfc] }), nfd)).toBe(false);
    expect(admitsTool(policyOf({ tools: [nfd] }), nfc)).toBe(false);
    expect(admitsTool(policyOf({ tools: ["*"] }, { tools: [nfc] }), nfc)).toBe(false);
  });

  it.each(["get_x\n", "get_x\r", "get_\u0000x", "get_x\u007f", "get_x\u0085", "get_\ud800", "\tget_x"])(
    "C18 no rule admits the control characters of %j",
    (name) => {
      for (const tools of [["get_*"], ["*"], [name]]) {
        expect(policyOf({ tools }).decide("tickets", { kind: "tool", name })).toMatchObject({
          kind: "deny",
          reason: "malformed",
        });
      }
    },
  );

  it.each(["a?b", "a[bc]", "a{b,c}", "a.b", "a\\b", "^a$", "(a|b)", "a+"])("C18 %j means just itself", (name) => {
    const policy = policyOf({ tools: [name] });
    expect(admitsTool(policy, name)).toBe(true);
    for (const other of ["axb", "ab", "ac", "a", "aa", "b"]) expect(admitsTool(policy, other)).toBe(false);
  });

  it("C18 a star in the name called is an ordinary character", () => {
    expect(admitsTool(policyOf({ tools: ["get_x"] }), "*")).toBe(false);
    expect(admitsTool(policyOf({ tools: ["get_x"] }), "get_*")).toBe(false);
    expect(admitsTool(policyOf({ tools: ["get_*"] }), "get_*")).toBe(true);
  });

  it("C18 deny wins over every grant, except is of its own rule alone", () => {
    const grants = [{ tools: ["drop_x"] }, { tools: ["*"] }];
    expect(admitsTool(policyOf(grants, { tools: ["drop_*"] }), "drop_x")).toBe(false);
    const excepting = policyOf([{ tools: [{ name: "*", except: ["drop_*"] }] }, { tools: ["drop_x"] }]);
    expect(admitsTool(excepting, "drop_x")).toBe(true);
    expect(admitsTool(excepting, "drop_y")).toBe(false);
  });
});

describe("long names", () => {
  it("are judged up to 64 Ki characters, and denied beyond", () => {
    const policy = policyOf({ tools: ["*"], resources: ["**"] });
    expect(admitsTool(policy, "x".repeat(65_536))).toBe(true);
    expect(admitsTool(policy, "x".repeat(65_537))).toBe(false);
    expect(admitsUri(policy, "x".repeat(65_537))).toBe(false);
  });
});

describe("resources", () => {
  const policy = policyOf(
    { resources: ["ticket://open/*", "file:///srv/**", "exact://host/a?b=*"], resourceTemplates: ["db://{table}/*"] },
    { resources: ["file:///srv/secret*"], resourceTemplates: ["db://{table}/{hidden}"] },
  );

  it.each([
    ["ticket://open/1", true],
    ["ticket://open/", true],
    ["ticket://open/1/2", false],
    ["ticket://open/1?x", false],
    ["ticket://open/1#x", false],
    ["ticket://closed/1", false],
    ["file:///srv/a/b?c#d", true],
    ["file:///srv/", true],
    ["file:///srv", false],
    ["exact://host/a?b=1", true],
    ["exact://host/axb=1", false],
  ])("%s is admitted: %s", (uri, expected) => {
    expect(admitsUri(policy, uri)).toBe(expected);
  });

  it("a deny spans segments, query and fragment", () => {
    for (const tail of ["", "s", "/a/b", "?x", "#y", "/a?b/c"]) {
      expect(admitsUri(policy, `file:///srv/secret${tail}`)).toBe(false);
    }
  });

  it.each([
    "file:///srv/../etc/passwd",
    "file:///srv/./a",
    "file:///srv/a/..",
    "file:///srv/..;x/a",
    "file:///srv/%2e%2e/a",
    "file:///srv/.%2E/a",
    "file:///srv/a%2fb",
    "file:///srv/a%5cb",
    "file:///srv/a%252fb",
    "file:///srv/%61",
    "file:///srv/%7E",
    "file:///srv/a%2Db",
    "file:///srv/a%5Fb",
    "file:///srv/a%30b",
    "file:///srv/a%5Ab",
    "file:///srv/a%7ab",
    "file:///srv/a\\b",
    "file:///srv/a\u0000",
    "file:///srv/a\n",
    "FILE:///srv/a",
    "File:///srv/a",
  ])("%j is denied whatever the rules say", (uri) => {
    expect(policy.decide("tickets", { kind: "resource", uris: [uri] })).toMatchObject({ reason: "malformed", uri });
    expect(admitsUri(policyOf({ resources: ["**", uri] }), uri)).toBe(false);
  });

  it.each(["ticket://Open/1", "ticket://user@open/1", "ticket://user:pw@open/1", "ticket://open:80@evil/1"])(
    "the authority of %j is denied",
    (uri) => {
      expect(admitsUri(policyOf({ resources: ["**", uri] }), uri)).toBe(false);
    },
  );

  it.each(["a%20b", "a%C3%A9b", "a%3Fb", "a%23b", "a..b", "...", ".hidden", "a@b", "A"])(
    "file:///srv/%s is an ordinary URI",
    (tail) => {
      expect(admitsUri(policy, `file:///srv/${tail}`)).toBe(true);
    },
  );

  it("one denied URI of a subscription denies all of it, and is named", () => {
    const uris = ["ticket://open/1", "ticket://closed/2", "ticket://closed/3"];
    expect(policy.decide("tickets", { kind: "resource", uris })).toMatchObject({
      kind: "deny",
      uri: "ticket://closed/2",
    });
    expect(policy.decide("tickets", { kind: "resource", uris: ["ticket://open/1", undefined] }).kind).toBe("deny");
    expect(policy.decide("tickets", { kind: "resource", uris: ["ticket://open/1"] }).kind).toBe("allow");
    expect(policy.decide("tickets", { kind: "resource", uris: [] }).kind).toBe("allow");
  });

  it("a template is shown by its text or as the URI that it looks like", () => {
    expect(admitsTemplate(policy, "db://{table}/{row}")).toBe(true);
    expect(admitsTemplate(policy, "db://{table}/{hidden}")).toBe(false);
    expect(admitsTemplate(policy, "db://{table}/{row}/{cell}")).toBe(false);
    expect(admitsTemplate(policy, "ticket://open/{id}")).toBe(true);
    expect(admitsTemplate(policy, "ticket://closed/{id}")).toBe(false);
    expect(admitsTemplate(policy, "file:///srv/secret/{x}")).toBe(false);
    expect(admitsTemplate(policy, "file:///srv/../{x}")).toBe(false);
  });

  it("a template that is admitted admits no read", () => {
    expect(admitsUri(policy, "db://{table}/1")).toBe(false);
    expect(admitsUri(policy, "db://{table}/{row}")).toBe(false);
  });

  it("a deny of resourceTemplates takes a template out that resources admits", () => {
    const both = policyOf({ resources: ["ticket://open/*"] }, { resourceTemplates: ["ticket://open/{secret*"] });
    expect(admitsTemplate(both, "ticket://open/{id}")).toBe(true);
    expect(admitsTemplate(both, "ticket://open/{secret}")).toBe(false);
  });

  it("a deny of resources takes a template out that resourceTemplates admits", () => {
    const both = policyOf({ resourceTemplates: ["file:///**"] }, { resources: ["file:///etc/*"] });
    expect(admitsTemplate(both, "file:///srv/{x}")).toBe(true);
    expect(admitsTemplate(both, "file:///etc/{x}")).toBe(false);
  });
});

describe("what the server may ask", () => {
  it("is the union of the grants, less what is denied", () => {
    const policy = policyOf([{ client: ["roots"] }, { client: ["sampling"] }], { client: ["sampling"] });
    expect(policy.admitsAsk("tickets", "roots")).toBe(true);
    expect(policy.admitsAsk("tickets", "sampling")).toBe(false);
    expect(policy.admitsAsk("tickets", "elicitation")).toBe(false);
    expect(policy.decide("tickets", { kind: "client", ask: "roots" }).kind).toBe("allow");
  });
});

describe("decisions", () => {
  it("name the rule that allowed and where it stands", () => {
    const first = grant({ tools: ["a", "b_*"] });
    const second = grant({ tools: ["c", "b_x"] });
    const deny = denial({ tools: ["z", "b_z*"] });
    const policy = compilePolicy({ servers: { crm: { grants: [first, second], deny } } });
    const decide = (name: string) => policy.decide("crm", { kind: "tool", name });
    expect(decide("b_x")).toEqual({ kind: "allow", rule: "servers.crm.grants[0].tools[1]", at: first.tools[1]?.at });
    expect(decide("c")).toEqual({ kind: "allow", rule: "servers.crm.grants[1].tools[0]", at: second.tools[0]?.at });
    expect(decide("b_zz")).toEqual({
      kind: "deny",
      reason: "denied",
      rule: "servers.crm.deny.tools[1]",
      at: deny.tools[1]?.at,
    });
    expect(decide("q")).toEqual({ kind: "deny", reason: "not-allowed", rule: undefined, at: undefined });
    expect(policy.decide("crm", { kind: "open" })).toEqual({
      kind: "allow",
      rule: "servers.crm.grants[0]",
      at: first.at,
    });
  });

  it("take the paths that the document's reader gave", () => {
    const tool = { pattern: "a", at: at(), path: "servers.crm.tools[3]", except: [] };
    const short = { ...grant({ prompts: ["p"] }), path: "servers.crm", tools: [tool] };
    const policy = compilePolicy({ servers: { crm: { grants: [short], deny: denial() } } });
    expect(policy.decide("crm", { kind: "tool", name: "a" })).toMatchObject({ rule: "servers.crm.tools[3]" });
    expect(policy.decide("crm", { kind: "prompt", name: "p" })).toMatchObject({ rule: "servers.crm.prompts[0]" });
    expect(policy.decide("crm", { kind: "open" })).toMatchObject({ rule: "servers.crm" });
  });

  it("take the first rule in file order, exact names having no precedence", () => {
    const names = ["*_x", "get_x", "get_*", { name: "get_y", except: ["get_y"] }, "get_y"] as const;
    const policy = policyOf({ tools: names });
    const ruleFor = (name: string) => policy.decide("tickets", { kind: "tool", name }).rule;
    expect(ruleFor("get_x")).toBe("servers.tickets.grants[0].tools[0]");
    expect(ruleFor("get_y")).toBe("servers.tickets.grants[0].tools[2]");
  });

  it("deny unknown methods and names that are missing", () => {
    const policy = policyOf({ tools: ["*"], prompts: ["*"], resources: ["**"], resourceTemplates: ["**"] });
    expect(policy.decide("tickets", { kind: "unknown" })).toMatchObject({ kind: "deny", reason: "method" });
    expect(policy.decide("tickets", { kind: "tool", name: undefined })).toMatchObject({ reason: "malformed" });
    expect(policy.decide("tickets", { kind: "prompt", name: undefined })).toMatchObject({ reason: "malformed" });
    expect(policy.decide("tickets", { kind: "template", uriTemplate: undefined })).toMatchObject({
      reason: "malformed",
    });
    for (const name of [undefined, null, 7, ["get_x"], { name: "get_x" }, true]) {
      expect(policy.shows("tickets", "tools", name)).toBe(false);
      expect(policy.shows("tickets", "resources", name)).toBe(false);
    }
  });

  it("deny when deciding fails", () => {
    const policy = policyOf({ tools: ["*"] });
    const hostile = {
      get kind(): "tool" {
        throw new Error("boom");
      },
      name: "x",
    };
    expect(policy.decide("tickets", hostile)).toMatchObject({ kind: "deny", reason: "error" });
  });
});
