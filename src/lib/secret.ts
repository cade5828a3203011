import { inspect } from "node:util";

const shown = "[secret]";

/** A value that must not be printed: every conversion gives `[secret]`, only `reveal()` gives the text. */
export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
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
