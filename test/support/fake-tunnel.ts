import type {
  GoAwayReason,
  Head,
  Open,
  Reset,
  ResetCode,
  SessionEnd,
  StreamSink,
  TunnelSession,
  TunnelStream,
} from "../../src/tunnel/index.ts";

/** The relay's end of one stream, as a scripted gateway drives it. */
export class FakeStream implements TunnelStream {
  readonly id: number;
  readonly open: Open;
  readonly sink: StreamSink;
  readonly received: Buffer[] = [];
  isRequestEnded = false;
  resetBy: Reset | undefined;
  creditBytes = 0;
  #isOver = false;
  /** False: `write` asks the relay to wait. */
  hasRoom = true;

  constructor(id: number, open: Open, sink: StreamSink) {
    this.id = id;
    this.open = open;
    this.sink = sink;
  }

  get body(): string {
    return Buffer.concat(this.received).toString();
  }

  sendHead(): void {
    throw new Error("a relay sends no head");
  }

  write(chunk: Buffer): boolean {
    this.received.push(chunk);
    return this.hasRoom;
  }

  end(): void {
    this.isRequestEnded = true;
  }

  reset(code: ResetCode, message = ""): void {
    this.resetBy ??= { code, message };
  }

  consumed(bytes: number): void {
    this.creditBytes += bytes;
  }

  /** As the tunnel room has it: a stream that is over tells its sink nothing more. */
  get isOver(): boolean {
    return this.#isOver || this.resetBy !== undefined;
  }

  /** What the gateway sends back. */
  head(status: number, headers: readonly string[] = ["content-type", "application/json"], rpcId?: string): void {
    const head: Head = { status, headers, by: "upstream", ...(rpcId === undefined ? {} : { rpcId }) };
    if (!this.isOver) this.sink.onHead?.(head);
  }

  data(text: string | Buffer): void {
    if (!this.isOver) this.sink.onData(Buffer.from(text as string));
  }

  finish(): void {
    if (this.isOver) return;
    this.sink.onEnd(false);
    this.#isOver = true;
  }

  fail(code: ResetCode, isUnsent = false): void {
    if (this.isOver) return;
    this.#isOver = true;
    this.sink.onReset({ code, message: "scripted", ...(isUnsent ? { isUnsent: true } : {}) });
  }

  answer(text: string, status = 200): void {
    this.head(status);
    this.data(text);
    this.finish();
  }
}

/** A tunnel session with a script instead of a gateway behind it. */
export class FakeSession implements TunnelSession {
  readonly connId: string;
  readonly peer: TunnelSession["peer"];
  carriesAgentTokens = false;
  servers: string[];
  isAccepting = true;
  openStreamCount = 0;
  lastEchoAt: number | undefined = undefined;
  readonly streams: FakeStream[] = [];
  /** What `openStream` says instead of opening. */
  refusal: Reset | undefined;
  goneAway: GoAwayReason | undefined;
  /** False: every `write` of every stream asks the relay to wait. */
  hasRoom = true;
  onStream: (stream: FakeStream) => void = () => undefined;
  readonly ended: Promise<SessionEnd>;
  #end: (end: SessionEnd) => void = () => undefined;

  constructor(servers: string[], peer: { id?: string; slot?: number; instance?: string } = {}) {
    this.servers = servers;
    this.peer = { id: peer.id ?? "edge-1", instance: peer.instance ?? "i", slot: peer.slot ?? 0, software: "fake" };
    this.connId = `conn-${Math.random()}`;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get last(): FakeStream {
    const stream = this.streams.at(-1);
    if (stream === undefined) throw new Error("no stream was opened");
    return stream;
  }

  openStream(open: Open, sink: StreamSink): TunnelStream | Reset {
    if (this.refusal !== undefined) return this.refusal;
    const stream = new FakeStream(this.streams.length * 2 + 1, open, sink);
    stream.hasRoom = this.hasRoom;
    this.streams.push(stream);
    // A gateway answers in a later turn than the one in which the stream was opened.
    setImmediate(() => this.onStream(stream));
    return stream;
  }

  async echo(): Promise<number> {
    return 1;
  }

  get drainReason(): GoAwayReason | undefined {
    return this.goneAway;
  }

  goAway(reason: GoAwayReason): void {
    this.goneAway = reason;
    this.isAccepting = false;
  }

  terminate(reason: SessionEnd["reason"], detail: string): void {
    this.isAccepting = false;
    for (const stream of this.streams) stream.fail("TUNNEL_LOST");
    this.#end({ reason, detail, by: "local" });
  }
}
