import { z } from "zod";
import { createGatewaySchema } from "./gateway-schema.ts";
import { policySchema } from "./policy-schema.ts";
import { createRelaySchema } from "./relay-schema.ts";

const titles = {
  gateway: "Postern gateway.yaml",
  relay: "Postern relay.yaml",
  policy: "Postern policy.yaml",
};

/** JSON Schemas of the three documents for editors, by file name; what only `postern check` can know is not in them. */
export function renderSchemas(): { readonly [fileName: string]: string } {
  const schemas = { gateway: createGatewaySchema("/"), relay: createRelaySchema("/"), policy: policySchema };
  const files: Record<string, string> = {};
  for (const kind of ["gateway", "relay", "policy"] as const) {
    const json = z.toJSONSchema(schemas[kind], { io: "input", override: ({ jsonSchema }) => closeMap(jsonSchema) });
    files[`${kind}.schema.json`] = `${JSON.stringify({ ...json, title: titles[kind] }, null, 2)}\n`;
  }
  return files;
}

/** Unknown keys are refused by a check of ours, which JSON Schema does not see. */
function closeMap(schema: z.core.JSONSchema.BaseSchema): void {
  const rest = schema.additionalProperties;
  const isOpen = typeof rest === "object" && rest !== null && Object.keys(rest).length === 0;
  if (schema.type === "object" && schema.properties !== undefined && isOpen) schema.additionalProperties = false;
}
