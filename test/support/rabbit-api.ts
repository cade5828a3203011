import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

/** The part of RabbitMQ's management API that the rabbitmq secrets engine uses: who exists, and who is gone again. */
export class RabbitApi {
  /** Passwords of the users that exist now. */
  readonly users = new Map<string, string>();
  /** In the order in which they were made. */
  readonly made: string[] = [];
  readonly deleted: string[] = [];
  readonly passwords: string[] = [];
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((req, res) => {
      let body = "";
      req.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      req.on("end", () => {
        const name = /^\/api\/users\/(.+)$/.exec(req.url ?? "")?.[1];
        if (name !== undefined && req.method === "PUT") this.#add(name, JSON.parse(body) as { password: string });
        if (name !== undefined && req.method === "DELETE") this.#remove(name);
        const isRead = req.method === "GET";
        res.writeHead(isRead ? 200 : 204, { "content-type": "application/json" }).end(isRead ? "[]" : undefined);
      });
    });
  }

  static async start(): Promise<RabbitApi> {
    const api = new RabbitApi();
    await new Promise<void>((resolve) => api.#server.listen(0, "127.0.0.1", resolve));
    return api;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  #add(name: string, { password }: { password: string }): void {
    this.users.set(name, password);
    this.made.push(name);
    this.passwords.push(password);
  }

  #remove(name: string): void {
    this.users.delete(name);
    this.deleted.push(name);
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }
}
