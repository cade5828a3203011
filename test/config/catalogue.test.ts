import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type DocumentKind, expectations } from "../../src/config/cures.ts";
import { renderSchemas } from "../../src/config/index.ts";
import { laterKeys } from "../../src/config/later.ts";
import { nearest } from "../../src/config/nearest.ts";

interface Schema {
  readonly properties?: Record<string, Schema>;
  readonly additionalProperties?: Schema | false;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
}

/** Every place of a JSON Schema, as the tables of cures name them. */
function placesOf(schema: Schema, place = ""): string[] {
  const below = Object.entries(schema.properties ?? {}).flatMap(([key, inner]) =>
    placesOf(inner, place === "" ? key : `${place}.${key}`),
  );
  const named = schema.additionalProperties ? placesOf(schema.additionalProperties, `${place}.*`) : [];
  const items = schema.items ? placesOf(schema.items, `${place}[]`) : [];
  const branches = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].flatMap((inner) => placesOf(inner, place));
  return [...new Set([place, ...below, ...named, ...items, ...branches])];
}

describe.each(["gateway", "relay", "policy"] as const)("%s", (kind: Exclude<DocumentKind, "cases">) => {
  const text = renderSchemas()[`${kind}.schema.json`] ?? "";
  const places = placesOf(JSON.parse(text));

  it("every place of the schema has words of its own, and no words are left over", () => {
    expect(places.length).toBeGreaterThan(15);
    const known = Object.keys(expectations[kind]);
    expect(places.filter((place) => !known.includes(place) && !place.startsWith("vault.auth.roleId."))).toEqual([]);
    expect(
      known.filter(
        (place) =>
          !places.includes(place) &&
          !/\.(token|secretId|wrappedSecretId|roleId|jwt|certificate|privateKey)\.vault\./.test(place),
      ),
    ).toEqual([]);
  });

  it("no key of a later version is one of this version", () => {
    expect(Object.keys(laterKeys[kind]).filter((place) => places.includes(place))).toEqual([]);
  });

  it("config/schema is fresh: `npm run schemas` writes it", () => {
    expect(readFileSync(`config/schema/${kind}.schema.json`, "utf8")).toBe(text);
  });

  it("maps are closed in the schema too", () => {
    const open = JSON.stringify(JSON.parse(text)).match(/"additionalProperties":\{\}/g);
    expect(open).toBeNull();
    expect(text).toContain('"additionalProperties": false');
  });
});

it("config/schema holds these three files", () => {
  expect(readdirSync("config/schema").sort()).toEqual(Object.keys(renderSchemas()).sort());
});

it.each([
  ["tool", "tools"],
  ["toosl", "tools"],
  ["TOOLS", "tools"],
  ["promts", "prompts"],
  ["resourcetemplate", "resourceTemplates"],
  ["deny", "deny"],
  ["allow", undefined],
  ["x", undefined],
  ["", undefined],
])("the nearest to %j is %j", (word, meant) => {
  expect(nearest(word, ["tools", "prompts", "resources", "resourceTemplates", "deny"])).toBe(meant);
});
