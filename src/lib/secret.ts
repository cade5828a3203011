import { inspect } from "node:util";
import { watchFor } from "./live-secrets.ts";

const shown = "[secret]";

/**
 * A value that must not be printed: every conversion gives `[secret]`, only `reveal()` gives the text. While it lives it is
 * looked for in whatever is logged (`concealSecrets`), unless it is `passing`: shown by an agent for one call, and so one
 * of too many.
 */
export class Secret {
  readonly #text: string;

  constructor(text: string, span: "kept" | "passing" = "kept") {
    this.#text = text;
    if (span === "kept") watchFor(this);
  }

  /** The text itself. Grep for this name to find every place where a secret leaves its wrapping. */
  reveal(): string {
    return this.#text;
  }

  toString(): string {
    return shown;
  }

  toJSON(): string {
    return shown;
  }

  [inspect.custom](): string {
    return shown;
  }
}
