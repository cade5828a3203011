/**
 * The YAML blocks of a Markdown text that begin with a comment naming a file, by that name. Placeholders for hashes
 * (`<hash of …>`) become hashes.
 */
export function readYamlBlocks(markdown: string): Readonly<Record<string, string>> {
  const blocks: Record<string, string> = {};
  for (const [, name = "", body = ""] of markdown.matchAll(/```yaml\n# ([a-z-]+\.yaml)[^\n]*\n([\s\S]*?)```/g)) {
    let count = 0;
    blocks[name] = body.replaceAll(/<hash[^>]*>/g, () => String(count++).padStart(64, "a"));
  }
  return blocks;
}
