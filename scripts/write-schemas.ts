import { writeFileSync } from "node:fs";
import { renderSchemas } from "../src/config/index.ts";

/** Writes config/schema/*.json from the schemas that the loaders use; a test holds that they are fresh. */
for (const [name, text] of Object.entries(renderSchemas())) {
  writeFileSync(new URL(`../config/schema/${name}`, import.meta.url), text);
}
