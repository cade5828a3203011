import { type Trap, ticketsPolicy } from "./traps.ts";

/** What people write into policy.yaml by mistake, and all that is said of it: place and message, then the cure. */
export const policyTraps: readonly Trap[] = [
  {
    title: "an empty file",
    yaml: "",
    says: [["1:1 this file holds no configuration", "one of the examples in config/"]],
  },
  {
    title: "a file of comments",
    yaml: "# only",
    says: [["1:1 this file holds no configuration", "one of the examples in config/"]],
  },
  {
    title: "a file that is null",
    yaml: "null",
    says: [["1:1 this file holds no configuration", "one of the examples in config/"]],
  },
  {
    title: "a list at the top",
    yaml: "- a",
    says: [["1:1 the document must be a map of keys", "version: 1 and servers: { … }, as in config/policy.yaml"]],
  },
  {
    title: "text at the top",
    yaml: "hello",
    says: [["1:1 the document must be a map of keys", "version: 1 and servers: { … }, as in config/policy.yaml"]],
  },
  {
    title: "a second document",
    yaml: "version: 1\nservers: {}\n---\nversion: 1",
    says: [["3:1 a second document begins here", "one document in one file, without --- or ... inside"]],
  },
  {
    title: "text after the document's end",
    yaml: "version: 1\nservers: {}\n...\nfoo",
    says: [["4:1 a second document begins here", "one document in one file, without --- or ... inside"]],
  },
  {
    title: "a directive, which could switch to YAML 1.1",
    yaml: "# x\n%YAML 1.1\n---\nversion: 1",
    says: [["2:1 a YAML directive (%) is not accepted", "the document without that line; files are YAML 1.2 in UTF-8"]],
  },
  {
    title: "a control character",
    yaml: "version: 1\nservers: {}\n# \u0001",
    says: [["3:3 control character U+0001", "the same line without it"]],
  },
  {
    title: "a key that stands further in than its neighbour",
    yaml: "version: 1\nservers:\n  tickets:\n    tools: [a]\n  crm:\n    tools: b\n     prompts: [c]",
    says: [
      [
        "6:12 the next line stands further in, so it continues this value, and has a `:`",
        "keys of one map in one column, indented by spaces",
      ],
    ],
  },
  {
    title: "a bracket too many, and all that follows from it",
    yaml: "version: 1\nservers:\n  tickets: { tools: [a]] }\n  crm: { tools: [b] }",
    says: [
      [
        "3:24 the indentation does not fit, or a bracket stays open",
        "keys of one map in one column, indented by spaces; every [ and { closed",
      ],
      ["3:26 this does not belong here", "keys as `name: value`, lists as `- item`, not both in one place"],
    ],
  },
  {
    title: "a tab as indentation",
    yaml: "version: 1\nservers:\n\ttickets: {}",
    says: [["3:1 a tab indents this line", "spaces"]],
  },
  {
    title: "C16 a key that repeats is refused",
    yaml: ticketsPolicy("    tools: [a]\n    tools: [b]"),
    says: [["5:5 `tools` is already a key of this map, on line 4", "one `tools:` that holds both"]],
  },
  {
    title: "C16 a server that repeats is refused",
    yaml: "version: 1\nservers:\n  a: { tools: [x] }\n  b: { tools: [x] }\n  a: { tools: [] }",
    says: [["5:3 `a` is already a key of this map, on line 3", "one `a:` that holds both"]],
  },
  {
    title: "C16 a key that repeats in another spelling is refused",
    yaml: ticketsPolicy('    tools: [a]\n    "t\\u006fols": [b]'),
    says: [["5:5 `tools` is already a key of this map, on line 4", "one `tools:` that holds both"]],
  },
  {
    title: "an anchor and its alias",
    yaml: ticketsPolicy("    tools: &t [a]\n    prompts: *t"),
    says: [
      [
        "4:15 anchors (&) are not accepted: what is allowed must stand where it is read",
        "the value without the anchor",
      ],
      [
        "5:14 `*` begins an alias in YAML, and aliases are not accepted",
        'the value itself, or, for a pattern, quotes around it: "*…"',
      ],
    ],
  },
  {
    title: "a merge key",
    yaml: ticketsPolicy("    <<: { tools: [a] }"),
    says: [["4:5 merge keys (<<) are not accepted", "the merged keys themselves"]],
  },
  {
    title: "a tag on a map",
    yaml: ticketsPolicy("    tools: !!set { a }"),
    says: [["4:18 tags (!) are not accepted", "the plain value; text in quotes if it begins with !"]],
  },
  {
    title: "a tag that turns a number to text",
    yaml: ticketsPolicy("    tools: [!!str 1]"),
    says: [["4:19 tags (!) are not accepted", "the plain value; text in quotes if it begins with !"]],
  },
  {
    title: "an unknown tag",
    yaml: ticketsPolicy("    tools: [!x a]"),
    says: [["4:16 tags (!) are not accepted", "the plain value; text in quotes if it begins with !"]],
  },
  {
    title: "C18 a bare * in brackets",
    yaml: ticketsPolicy("    tools: [*]"),
    says: [["4:13 `*` begins an alias in YAML", 'the pattern in quotes: "*"']],
  },
  {
    title: "C18 a bare * as an item",
    yaml: ticketsPolicy("    tools:\n      - *"),
    says: [["5:9 `*` begins an alias in YAML", 'the pattern in quotes: "*"']],
  },
  {
    title: "C18 a pattern that begins with *",
    yaml: ticketsPolicy("    tools:\n      - *_read"),
    says: [
      [
        "5:9 `*` begins an alias in YAML, and aliases are not accepted",
        'the value itself, or, for a pattern, quotes around it: "*…"',
      ],
    ],
  },
  {
    title: "a value that begins with @",
    yaml: ticketsPolicy("    tools: [@x]"),
    says: [["4:13 @ and ` cannot begin a plain value", 'the value in quotes: "…"']],
  },
  {
    title: "an unknown escape",
    yaml: ticketsPolicy('    tools: ["\\q"]'),
    says: [["4:14 unknown escape in double quotes", "the value in single quotes, where \\ is not special"]],
  },
  {
    title: "an open bracket",
    yaml: ticketsPolicy("    tools: [a"),
    says: [
      [
        "4:14 the indentation does not fit, or a bracket stays open",
        "keys of one map in one column, indented by spaces; every [ and { closed",
      ],
    ],
  },
  {
    title: "an open quote",
    yaml: ticketsPolicy("    tools: ['a]"),
    says: [["4:16 something is missing here: a closing quote or bracket, a `:` or a `,`", "the pair complete"]],
  },
  {
    title: "two colons on a line",
    yaml: ticketsPolicy("    tools: a: b"),
    says: [["4:12 two `:` on one line", 'the second part on a line of its own, or the value in quotes: "…"']],
  },
  {
    title: "indentation that fits nothing",
    yaml: ticketsPolicy("    tools: [a]\n   prompts: [b]"),
    says: [
      [
        "5:1 the indentation does not fit, or a bracket stays open",
        "keys of one map in one column, indented by spaces; every [ and { closed",
      ],
    ],
  },
  {
    title: "a number as a server's name",
    yaml: "version: 1\nservers:\n  1: { tools: [a] }",
    says: [["3:3 the key 1 is no text", 'the key in quotes: "1"']],
  },
  {
    title: "a boolean as a server's name",
    yaml: "version: 1\nservers:\n  true: { tools: [a] }",
    says: [["3:3 the key true is no text", 'the key in quotes: "true"']],
  },
  {
    title: "null as a server's name",
    yaml: "version: 1\nservers:\n  ~: { tools: [a] }",
    says: [["3:3 the key ~ is no text", 'the key in quotes: "~"']],
  },
  {
    title: "a list as a key",
    yaml: "version: 1\nservers:\n  ? [a]\n  : { tools: [a] }",
    says: [["3:5 a key must be text", "name: value"]],
  },
  {
    title: "__proto__ as a server's name",
    yaml: "version: 1\nservers:\n  __proto__: { tools: [a] }",
    says: [["3:3 `__proto__` cannot be a key", "another name"]],
  },
  {
    title: "a server's name that no URL may hold, and what is wrong below it",
    yaml: "version: 1\nservers:\n  Tickets_1: { tools: a }",
    says: [
      ["3:3 `Tickets_1` is no name: a-z, 0-9 and -, at most 63, not beginning with -", "tickets-1"],
      ["3:23 `servers.Tickets_1.tools` must be a list of rules", 'tools: ["a"]'],
    ],
  },
  {
    title: "C17 tools with nothing",
    yaml: ticketsPolicy("    tools:"),
    says: [["4:5 `servers.tickets.tools` has no value", "tools: [search_issues]   ([] allows none)"]],
  },
  {
    title: "C17 tools: null",
    yaml: ticketsPolicy("    tools: null"),
    says: [["4:5 `servers.tickets.tools` has no value", "tools: [search_issues]   ([] allows none)"]],
  },
  {
    title: "C17 tools: ~",
    yaml: ticketsPolicy("    tools: ~"),
    says: [["4:5 `servers.tickets.tools` has no value", "tools: [search_issues]   ([] allows none)"]],
  },
  {
    title: "C17 tools as a string",
    yaml: ticketsPolicy("    tools: get_x"),
    says: [["4:12 `servers.tickets.tools` must be a list of rules", 'tools: ["get_x"]']],
  },
  {
    title: "C17 tools as a map",
    yaml: ticketsPolicy("    tools: { get_x: true }"),
    says: [["4:12 `servers.tickets.tools` must be a list of rules", "tools: [search_issues]   ([] allows none)"]],
  },
  {
    title: "C17 tools that are no text",
    yaml: ticketsPolicy("    tools: [1, 1.0, true, 0x1F]"),
    says: [
      ["4:13 `servers.tickets.tools[0]` is read as a number, not as text", '"1"'],
      ["4:16 `servers.tickets.tools[1]` is read as a number, not as text", '"1.0"'],
      ["4:21 `servers.tickets.tools[2]` is read as a boolean, not as text", '"true"'],
      ["4:27 `servers.tickets.tools[3]` is read as a number, not as text", '"0x1F"'],
    ],
  },
  {
    title: "C17 an item with nothing",
    yaml: ticketsPolicy("    tools:\n      - a\n      -\n"),
    says: [["6:8 `servers.tickets.tools[1]` has no value", "search_issues"]],
  },
  {
    title: "C17 a misspelt key",
    yaml: ticketsPolicy("    tool: [a]"),
    says: [["4:5 unknown key `tool` in `servers.tickets`", "tools"]],
  },
  {
    title: "C17 a key with swapped letters",
    yaml: ticketsPolicy("    toosl: [a]"),
    says: [["4:5 unknown key `toosl` in `servers.tickets`", "tools"]],
  },
  {
    title: "C17 a key of another product",
    yaml: ticketsPolicy("    allow: [a]"),
    says: [
      [
        "4:5 unknown key `allow` in `servers.tickets`",
        "one of: tools, prompts, resources, resourceTemplates, client, grants, deny",
      ],
    ],
  },
  {
    title: "C18 a key in other case",
    yaml: ticketsPolicy("    Tools: [a]"),
    says: [["4:5 unknown key `Tools` in `servers.tickets`", "tools"]],
  },
  {
    title: "a pattern that repeats",
    yaml: ticketsPolicy("    tools: [a, b, a]"),
    says: [["4:19 `servers.tickets.tools[2]` repeats an entry of line 4", "each entry once"]],
  },
  {
    title: "a rule's name that repeats",
    yaml: ticketsPolicy('    tools:\n      - a\n      - { name: a, except: ["b"] }'),
    says: [["6:17 `servers.tickets.tools[1]` has the name of an entry of line 5", "each entry once"]],
  },
  {
    title: "an except pattern that repeats",
    yaml: ticketsPolicy('    tools: [{ name: "*", except: [x, x] }]'),
    says: [["4:38 `servers.tickets.tools[0].except[1]` repeats an entry of line 4", "each entry once"]],
  },
  {
    title: "an empty pattern",
    yaml: ticketsPolicy('    tools: [""]'),
    says: [["4:13 `servers.tickets.tools[0]` is empty and matches nothing", 'a name, or "*" for every name']],
  },
  {
    title: "a rule with an unknown key and no name",
    yaml: ticketsPolicy("    tools: [{ tool: a }]"),
    says: [
      ["4:13 `servers.tickets.tools[0].name` is missing", "name: search_issues"],
      ["4:15 unknown key `tool` in `servers.tickets.tools[0]`", "one of: name, except"],
    ],
  },
  {
    title: "except as a string",
    yaml: ticketsPolicy("    tools: [{ name: a, except: b }]"),
    says: [["4:32 `servers.tickets.tools[0].except` must be a list of patterns", 'except: ["b"]']],
  },
  {
    title: "a rule without a name",
    yaml: ticketsPolicy("    tools: [{ except: [b] }]"),
    says: [["4:13 `servers.tickets.tools[0].name` is missing", "name: search_issues"]],
  },
  {
    title: "except: null, which is not nothing",
    yaml: ticketsPolicy("    tools: [{ name: a, except: ~ }]"),
    says: [["4:24 `servers.tickets.tools[0].except` has no value", 'except: ["delete_*"]']],
  },
  {
    title: "unknown client kinds",
    yaml: ticketsPolicy("    client: [samplng, logging]"),
    says: [
      ["4:14 `servers.tickets.client[0]` must be sampling, elicitation or roots", "sampling"],
      ["4:23 `servers.tickets.client[1]` must be sampling, elicitation or roots", "elicitation"],
    ],
  },
  {
    title: "client as a string",
    yaml: ticketsPolicy("    client: sampling"),
    says: [["4:13 `servers.tickets.client` must be a list of what the server may ask", 'client: ["sampling"]']],
  },
  {
    title: "a grant's keys beside grants",
    yaml: ticketsPolicy("    tools: [a]\n    grants: [{ tools: [b] }]"),
    says: [
      [
        "4:5 `servers.tickets` has `grants` and beside it `tools`, a key of a grant",
        "- tools: … as one more of the grants",
      ],
    ],
  },
  {
    title: "deny as a list",
    yaml: ticketsPolicy("    tools: [a]\n    deny: [b]"),
    says: [["5:11 `servers.tickets.deny` must be a map of pattern lists", 'deny: { tools: ["drop_*"] }']],
  },
  {
    title: "a rule with keys in deny",
    yaml: ticketsPolicy("    tools: [a]\n    deny: { tools: [{ name: b }] }"),
    says: [["5:21 `servers.tickets.deny.tools[0]` must be a pattern (deny has no rules with keys)", '"drop_*"']],
  },
  {
    title: "a string in deny",
    yaml: ticketsPolicy("    tools: [a]\n    deny: { tools: b }"),
    says: [["5:20 `servers.tickets.deny.tools` must be a list of patterns", 'tools: ["b"]']],
  },
  {
    title: "C17 a misspelt key in deny",
    yaml: ticketsPolicy("    tools: [a]\n    deny: { tols: [b] }"),
    says: [["5:13 unknown key `tols` in `servers.tickets.deny`", "tools"]],
  },
  {
    title: "C17 deny with nothing",
    yaml: ticketsPolicy("    tools: [a]\n    deny:"),
    says: [["5:5 `servers.tickets.deny` has no value", 'deny: { tools: ["drop_*"] }']],
  },
  {
    title: "grants as a map",
    yaml: ticketsPolicy("    grants: { tools: [a] }"),
    says: [["4:13 `servers.tickets.grants` must be a list of grants", "grants: [ { tools: [search_issues] } ]"]],
  },
  {
    title: "a grant that is null",
    yaml: ticketsPolicy("    grants: [~]"),
    says: [["4:14 `servers.tickets.grants[0]` has no value", "{ tools: [search_issues] }"]],
  },
  {
    title: "C17 a server with nothing",
    yaml: "version: 1\nservers:\n  tickets:\n",
    says: [["3:3 `servers.tickets` has no value", "{ tools: [search_issues] }"]],
  },
  {
    title: "servers as a list",
    yaml: "version: 1\nservers: [tickets]",
    says: [["2:10 `servers` must be a map of servers by name", "servers: { tickets: { tools: [search_issues] } }"]],
  },
  {
    title: "no version",
    yaml: "servers: {}",
    says: [["1:1 `version` is missing", "version: 1"]],
  },
  {
    title: "another version",
    yaml: "version: 2\nservers: {}",
    says: [["1:10 `version` must be 1", "version: 1"]],
  },
  {
    title: "a version in quotes",
    yaml: 'version: "1"\nservers: {}',
    says: [["1:10 `version` must be 1", "version: 1"]],
  },
  {
    title: "no servers",
    yaml: "version: 1",
    says: [["1:1 `servers` is missing", "servers: { tickets: { tools: [search_issues] } }"]],
  },
  {
    title: "features of later versions at the top",
    yaml: "version: 1\nmode: shadow\nonDeny: explicit\nservers: {}",
    says: [
      ["2:1 `mode` is not in this version yet", "the file without `mode`: it is always enforced"],
      ["3:1 `onDeny` is not in this version yet", "the file without `onDeny`: what is denied is hidden"],
    ],
  },
  {
    title: "features of later versions in a server",
    yaml: ticketsPolicy("    limits: { calls: 60/min }\n    lock: warn\n    hygiene: strip\n    for: [x]\n    when: x"),
    says: [
      ["4:5 `limits` is not in this version yet", "the entry without `limits`"],
      ["5:5 `lock` is not in this version yet", "the server without `lock`"],
      ["6:5 `hygiene` is not in this version yet", "the server without `hygiene`"],
      [
        "7:5 `for` is not in this version yet",
        "the grant without it: in this version a grant is for everybody whom the relay lets use the server",
      ],
      [
        "8:5 `when` is not in this version yet",
        "the grant without it: in this version a grant is for everybody whom the relay lets use the server",
      ],
    ],
  },
  {
    title: "features of later versions in a tool's rule",
    yaml: ticketsPolicy("    tools:\n      - { name: a, when: x, arguments: {}, require: y, limits: {} }"),
    says: [
      ["5:20 `when` is not in this version yet", 'a pattern, or { name: "get_*", except: [get_secret] }'],
      ["5:29 `arguments` is not in this version yet", 'a pattern, or { name: "get_*", except: [get_secret] }'],
      ["5:44 `require` is not in this version yet", 'a pattern, or { name: "get_*", except: [get_secret] }'],
      ["5:56 `limits` is not in this version yet", 'a pattern, or { name: "get_*", except: [get_secret] }'],
    ],
  },
  {
    title: "features of later versions in a resource's rule, where arguments never belong",
    yaml: ticketsPolicy("    resources:\n      - { name: b, arguments: {}, when: x }"),
    says: [
      ["5:20 unknown key `arguments` in `servers.tickets.resources[0]`", "one of: name, except"],
      ["5:35 `when` is not in this version yet", 'a pattern, or { name: "get_*", except: [get_secret] }'],
    ],
  },
  {
    title: "features of later versions in a grant",
    yaml: ticketsPolicy(
      '    grants:\n      - { for: ["key:a"], when: x, limits: {}, tools: [{ name: a, require: y }] }',
    ),
    says: [
      [
        "5:11 `for` is not in this version yet",
        "the grant without it: in this version a grant is for everybody whom the relay lets use the server",
      ],
      [
        "5:27 `when` is not in this version yet",
        "the grant without it: in this version a grant is for everybody whom the relay lets use the server",
      ],
      ["5:36 `limits` is not in this version yet", "the entry without `limits`"],
      ["5:67 `require` is not in this version yet", 'a pattern, or { name: "get_*", except: [get_secret] }'],
    ],
  },
  {
    title: "C17 every problem of a file at once",
    yaml: ticketsPolicy("    tools: get_x\n    promts: [a]\n    resources:\n    client: [x]\n    deny: []"),
    says: [
      ["4:12 `servers.tickets.tools` must be a list of rules", 'tools: ["get_x"]'],
      ["5:5 unknown key `promts` in `servers.tickets`", "prompts"],
      ["6:5 `servers.tickets.resources` has no value", 'resources: ["ticket://open/*"]   ([] allows none)'],
      ["7:14 `servers.tickets.client[0]` must be sampling, elicitation or roots", "elicitation"],
      ["8:11 `servers.tickets.deny` must be a map of pattern lists", 'deny: { tools: ["drop_*"] }'],
    ],
  },
  {
    title: "brackets without end",
    yaml: "version: 1\nservers: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    says: [["2:1 this nests deeper than any configuration does", "at most a few levels; see config/ for examples"]],
  },
  {
    title: "dashes without end",
    yaml: "- - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - ",
    says: [["1:1 this nests deeper than any configuration does", "at most a few levels; see config/ for examples"]],
  },
  {
    title: "colons without end",
    yaml: "a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: a: ",
    says: [["1:1 this nests deeper than any configuration does", "at most a few levels; see config/ for examples"]],
  },
  {
    title: "CRLF line ends, with the place still right",
    yaml: "version: 1\r\nservers:\r\n  tickets:\r\n    tool: []\r\n",
    says: [["4:5 unknown key `tool` in `servers.tickets`", "tools"]],
  },
];
