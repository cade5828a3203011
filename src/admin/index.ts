export { type AdminListener, type AdminOptions, listenAdmin, type StatusSource } from "./listener.ts";
