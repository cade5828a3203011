import type { Fault } from "./cures.ts";

/**
 * What to say of YAML that cannot be read, or that is refused, by the parser's error code or one of ours. `detail` is a
 * bit of the author's text for the codes below that show it: never a value, which may be a secret.
 */
export function syntaxFault(code: string, detail = ""): Fault {
  const entry = faults[code];
  if (entry === undefined) return fault("this is not valid YAML", "keys as `name: value`, lists as `- item`");
  return typeof entry === "function" ? entry(detail) : entry;
}

function fault(message: string, cure: string): Fault {
  return { message, cure };
}

const quotes = 'the value in quotes: "…"';

const faults: { readonly [code: string]: Fault | ((detail: string) => Fault) } = {
  empty: fault("this file holds no configuration", "one of the examples in config/"),
  directive: fault(
    "a YAML directive (%) is not accepted",
    "the document without that line; files are YAML 1.2 in UTF-8",
  ),
  brace: fault("`{` begins a map in YAML where brackets are open", 'the path in quotes: "mcp/tickets/{principal.id}"'),
  variable: fault(
    "variables are not expanded here",
    "a source for a secret: { env: NAME } or { file: PATH }; anything else as it is",
  ),
  continued: fault(
    "the next line stands further in, so it continues this value, and has a `:`",
    "keys of one map in one column, indented by spaces",
  ),
  "too-deep": fault("this nests deeper than any configuration does", "at most a few levels; see config/ for examples"),
  "several-documents": fault("a second document begins here", "one document in one file, without --- or ... inside"),
  anchor: fault(
    "anchors (&) are not accepted: what is allowed must stand where it is read",
    "the value without the anchor",
  ),
  alias: fault(
    "`*` begins an alias in YAML, and aliases are not accepted",
    'the value itself, or, for a pattern, quotes around it: "*…"',
  ),
  tag: fault("tags (!) are not accepted", "the plain value; text in quotes if it begins with !"),
  "merge-key": fault("merge keys (<<) are not accepted", "the merged keys themselves"),
  "reserved-key": (key) => fault(`\`${key}\` cannot be a key`, "another name"),
  "repeated-key": (detail) => {
    const [key, line] = detail.split("\u0000");
    return fault(`\`${key}\` is already a key of this map, on line ${line}`, `one \`${key}:\` that holds both`);
  },
  "key-not-text": (source) =>
    source === ""
      ? fault("a key must be text", "name: value")
      : fault(`the key ${source} is no text`, `the key in quotes: "${source}"`),
  BAD_ALIAS: fault("`*` begins an alias in YAML", 'the pattern in quotes: "*"'),
  ALIAS_PROPS: fault("aliases are not accepted", "the value itself"),
  BAD_DQ_ESCAPE: fault("unknown escape in double quotes", "the value in single quotes, where \\ is not special"),
  BAD_INDENT: fault(
    "the indentation does not fit, or a bracket stays open",
    "keys of one map in one column, indented by spaces; every [ and { closed",
  ),
  BAD_SCALAR_START: fault("@ and ` cannot begin a plain value", quotes),
  BLOCK_AS_IMPLICIT_KEY: fault("two `:` on one line", `the second part on a line of its own, or ${quotes}`),
  BLOCK_IN_FLOW: fault(
    "a second `:` or an indented block stands within brackets",
    "the whole list or map on one level within the brackets",
  ),
  MISSING_CHAR: fault("something is missing here: a closing quote or bracket, a `:` or a `,`", "the pair complete"),
  MULTILINE_IMPLICIT_KEY: fault("a key goes over several lines, or its `:` is missing", "key: value"),
  MULTIPLE_DOCS: fault("a second document begins here", "one document in one file"),
  TAB_AS_INDENT: fault("a tab indents this line", "spaces"),
  UNEXPECTED_TOKEN: fault(
    "this does not belong here",
    "keys as `name: value`, lists as `- item`, not both in one place",
  ),
  KEY_OVER_1024_CHARS: fault("this key is longer than 1024 characters", "a shorter key"),
};
