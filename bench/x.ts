import { measureMemory } from "./memory-x.ts";
await measureMemory(false);
