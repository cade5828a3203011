import { createServer } from "node:net";

/** Whether an address can be listened on now: undefined, or the system's code (EADDRINUSE, EACCES). Lets go of it at once. */
export function tryListen(address: { readonly host: string; readonly port: number }): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "unknown"));
    server.listen({ ...address, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
