import { idKeyOf } from "../mcp/index.ts";
import { type McpSessions, maxAsksPerSession } from "./mcp-sessions.ts";

/** The server's requests that one answer carried to the agent, which answers each with a POST of its own. */
export class CarriedAsks {
  readonly #sessions: McpSessions;
  /** In which the agent will post. */
  readonly #session: string;
  readonly #ids = new Set<string>();

  constructor(sessions: McpSessions, session: string) {
    this.#sessions = sessions;
    this.#session = session;
  }

  /** `idText`: raw JSON text. False: too many are pending, so the answer could not be let through. */
  add(idText: string): boolean {
    const id = idKeyOf(idText);
    if (!this.#sessions.ask(this.#session, id)) return false;
    this.#ids.add(id);
    // The session remembers no more than this either, and the oldest is forgotten first.
    const [oldest] = this.#ids;
    if (this.#ids.size > maxAsksPerSession && oldest !== undefined) this.#ids.delete(oldest);
    return true;
  }

  /** The answer is over. `isSettled`: the server waits no more; else the agent may resume the stream and still answer. */
  release(isSettled: boolean): void {
    for (const id of this.#ids) {
      if (isSettled) this.#sessions.dropAsk(this.#session, id);
      else this.#sessions.lingerAsk(this.#session, id);
    }
    this.#ids.clear();
  }
}
