export { type AdminListener, type AdminOptions, listenAdmin, type StatusSource } from "./listener.ts";
export { tryListen } from "./try-listen.ts";
