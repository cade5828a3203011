import type { Caller } from "../credentials/index.ts";
import type { Injected, Injector } from "./context.ts";

/** Told, perhaps before `findAnother` returns. What `onAnother` throws counts as no other. */
export interface CredentialSeeker {
  onAnother(next: Injected): void;
  /** There is none, or it could not be had: the credentials room has logged why. */
  onNoOther(): void;
}

/** After a server refused `failed`: what there is now is read anew, once for all calls that meet this together. */
export function findAnother(credential: Injector, failed: Injected, caller: Caller, seeker: CredentialSeeker): void {
  const tell = (next: Injected): void => {
    if (isSame(next, failed)) seeker.onNoOther();
    else seeker.onAnother(next);
  };
  try {
    const found = credential.refresh(failed, caller);
    if (found instanceof Promise) found.then(tell).catch(() => seeker.onNoOther());
    else tell(found);
  } catch {
    seeker.onNoOther();
  }
}

function isSame(a: Injected, b: Injected): boolean {
  return a.tls === b.tls && a.headers.length === b.headers.length && a.headers.every((x, i) => x === b.headers[i]);
}
