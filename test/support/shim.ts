import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** Which way bytes vanish: towards the one who listens behind the shim, back to the one who dialled, or both. */
export type Hole = "forth" | "back" | "both";

/** A TCP hop that can swallow bytes without a word, as a pulled cable does. */
export interface Shim {
  readonly port: number;
  /** Connections that stand now lose what is sent that way, for ever; later ones pass. */
  blackHole(hole: Hole): void;
  /** Connections that either side holds open. */
  openCount(): number;
  close(): Promise<void>;
}

interface Pair {
  readonly front: Socket;
  readonly back: Socket;
  hole: Hole | undefined;
}

export async function startShim(target: number): Promise<Shim> {
  const pairs = new Set<Pair>();
  const server = createServer({ allowHalfOpen: true }, (front) => {
    const back = connect({ port: target, host: "127.0.0.1", allowHalfOpen: true });
    const pair: Pair = { front, back, hole: undefined };
    pairs.add(pair);
    const pass = (from: Socket, to: Socket, way: Hole): void => {
      const isHoled = (): boolean => pair.hole === way || pair.hole === "both";
      from.on("data", (bytes: Buffer) => {
        if (!isHoled()) to.write(bytes);
      });
      from.on("end", () => {
        if (!isHoled()) to.end();
      });
      from.on("close", () => {
        if (!isHoled()) to.destroy();
        if (front.destroyed && back.destroyed) pairs.delete(pair);
      });
      from.on("error", () => undefined);
    };
    pass(front, back, "forth");
    pass(back, front, "back");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    blackHole: (hole) => {
      for (const pair of pairs) pair.hole = hole;
    },
    openCount: () => pairs.size,
    close: async () => {
      for (const { front, back } of pairs) {
        front.destroy();
        back.destroy();
      }
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
