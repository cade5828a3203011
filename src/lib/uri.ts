/** URIs and names that are denied whatever a rule says, because others may read them as something else (DESIGN 4.3). */

/** C0, DEL, C1, and halves of surrogate pairs. */
const unsafeCharacter = /[\p{Cc}\p{Surrogate}]/u;
/** As much as fits into the header that mirrors a name. Matching takes a time that grows with the length. */
const maxLength = 64 * 1024;

/** Whether no rule can admit a name: it has control characters, is no Unicode text, or is longer than 64 Ki characters. */
export function isUnsafeName(name: string): boolean {
  return name.length > maxLength || unsafeCharacter.test(name);
}

const head = /^(?:([^:/?#]*):)?(?:\/\/([^/?#]*))?([^?#]*)/;
/** Percent-encoded: a letter, digit, `-`, `.`, `_`, `~` (RFC 3986 2.3: the same as bare), `%`, `/` or `\`. */
const needlessEncoding = /%(?:2[5def]|3[0-9]|4[1-9a-f]|5[0-9acf]|6[1-9a-f]|7[0-9ae])/i;

/** Whether a URI has more than one reading: another case, user info, a backslash, dot segments, needless encodings. */
export function isAmbiguousUri(uri: string): boolean {
  if (isUnsafeName(uri) || uri.includes("\\") || needlessEncoding.test(uri)) return true;
  const [, scheme, authority, path] = head.exec(uri) ?? [];
  if (scheme !== undefined && scheme !== scheme.toLowerCase()) return true;
  if (authority !== undefined && (authority.includes("@") || authority !== authority.toLowerCase())) return true;
  return path !== undefined && dotSegment.test(path);
}

/** `..;x` counts too: some servers cut such parameters off before they resolve the path. */
const dotSegment = /(?:^|\/)\.{1,2}(?:$|[/;])/;
